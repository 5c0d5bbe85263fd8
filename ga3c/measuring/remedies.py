"""Which settings to change, each with the gain in steps a second that measurements promise."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ga3c.measuring.round_trips import more_groups
from ga3c.measuring.serving import PREDICTION_BATCH
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig

NOISE = 0.05
LITTLE_WAITING = 0.2  # of agents' time; if cores idle, their environments then wait for something


class Remedy(NamedTuple):
    """A change of settings, and the relative gain in steps a second expected from it."""

    options: dict[str, Any]  # settings of one section, by name
    gain: float
    because: str
    section: str = "service"

    @property
    def command(self) -> str:
        """The change as command-line options."""
        return " ".join(f"--{k.replace('_', '-')} {v}" for k, v in self.options.items())


class Sizes(NamedTuple):
    """Functions from a batch size to predictions a second and to trained samples a second."""

    predictions: Callable[[int], float]
    training: Callable[[int], float]


def learning_limits(config: TrainConfig, figures: dict[str, Any]) -> bool:
    """Whether cores idle because all else waits for learning, as can happen with a GPU.

    False for a replay, from which trainers may learn without a pause.
    """
    idles = figures["core_seconds_per_s"]["idle"] > NOISE * CORES
    return idles and figures["trainers_waiting_share"] < NOISE and not config.learns_from_replay


def remedies(
    config: TrainConfig, figures: dict[str, Any], parts: dict[str, float], sizes: Sizes
) -> Iterator[Remedy]:
    """Changes that may help, each with its expected gain.

    Args:
        figures: of the service, as `serving.figures` returns them.
        parts: the rate of each part alone, as `serving.measure_parts` returns them.
    """
    service, account = config.service, figures["core_seconds_per_s"]
    if config.learns_from_replay:
        yield from _remedies_of_pacing(config, account)
    else:
        yield from _remedies_of_segments(config, figures, parts, sizes)
    for change in more_groups(figures, service):
        yield Remedy(*change)
    batch = max(service.prediction_min, round(figures["prediction_batch"]))
    waited = min(2 * batch, service.largest_prediction(config.max_lanes))
    if batch < PREDICTION_BATCH and waited > batch:
        now, then = sizes.predictions(batch), sizes.predictions(waited)
        saved = 1 - now / then
        yield Remedy(
            {"envs_per_agent": 2 * service.envs_per_agent, "prediction_batch_min": waited},
            _gain(account["prediction"] * saved),
            f"predictions in batches of {waited} are {saved:.0%} cheaper",
        )


def _remedies_of_segments(
    config: TrainConfig, figures: dict[str, Any], parts: dict[str, float], sizes: Sizes
) -> Iterator[Remedy]:
    """Changes that may help where segments are learned from in order."""
    service, account = config.service, figures["core_seconds_per_s"]
    learning, idle = learning_limits(config, figures), account["idle"]
    if idle > NOISE * CORES and not learning:
        # More trainers would not help: updates are made one at a time.
        if figures["predictors_blocked_share"] > NOISE:
            because = "predictors wait for room although trainers wait too: batches come in bursts"
            yield Remedy({"pending_segments": service.pending_segments + 1}, _gain(idle), because)
        elif more := _more_agents(config, figures):
            yield more
        else:
            because = "agents and predictors wait for each other: more lanes hide that"
            yield Remedy({"envs_per_agent": 2 * service.envs_per_agent}, _gain(idle), because)
    batch, twice = service.update_max, 2 * service.update_max
    if service.minibatch is not None and twice > service.training_batch_max:
        return
    larger = {
        "training_batch_max": twice,
        "training_batch_min": twice,
        "training_queue": max(service.training_queue, 2 * twice),
    }
    faster = sizes.training(twice) / parts["train_only"]
    saved = 1 - 1 / faster
    gain = _gain(account["training"] * saved)
    if learning:
        # Unless other machines play, too, playing on all cores is the most that is left.
        most = CORES * parts["environment_only"] / figures["pps"] - 1
        gain = faster - 1 if config.hosts.others_may_play else min(faster - 1, most)
    yield Remedy(
        larger if service.minibatch is None else {"minibatch": twice},
        gain,
        f"an update of {twice} trains a sample {saved:.0%} cheaper than one of {batch}",
    )


def _more_agents(config: TrainConfig, figures: dict[str, Any]) -> Remedy | None:
    """As many more agents as there are idle cores; None if that would not help.

    An agent occupies one core, or less if its environments wait for something else.
    """
    service, idle = config.service, figures["core_seconds_per_s"]["idle"]
    if config.hosts.others_may_play:
        return None  # their machines may have no room for another agent
    room, because = CORES, "cores idle, and there are fewer agents than cores"
    if service.agents >= CORES:
        if figures["agents_waiting_share"] > LITTLE_WAITING:
            return None
        room, because = service.most.agents, "cores idle, and agents rarely wait for actions"
    added = min(max(int(idle), 1), min(room, service.most.agents) - service.agents)
    if added < 1:
        return None
    gain = min(_gain(idle), added / service.agents)
    return Remedy({"agents": service.agents + added}, gain, because)


def _remedies_of_pacing(config: TrainConfig, account: dict[str, float]) -> Iterator[Remedy]:
    """Changes that may help when acting and learning wait for each other; not for pacing free."""
    if config.pacing.pacing == "free":
        return
    steps = config.pacing.steps_per_update
    if config.pacing.pacing == "ratio" and account["idle"] > NOISE * CORES:
        period = {
            "pacing": "target-period",
            "period_steps": int(config.replay.target_period * steps),
        }
        because = "acting and learning wait for each other at every update, not once per period"
        yield Remedy(period, _gain(account["idle"]), because, "pacing")
    yield Remedy(
        {"steps_per_update": 2 * steps},
        _gain(account["training"] / 2),
        f"training takes {account['training'] / CORES:.0%} of the cores: half as many updates take "
        "half of that, but a step is learned from half as often",
        "pacing",
    )


def _gain(saved_cores: float) -> float:
    return saved_cores / (CORES - saved_cores)
