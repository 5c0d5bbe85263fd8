"""Which settings to change, each with the gain in steps a second that measurements promise."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ga3c.measuring.round_trips import more_groups
from ga3c.measuring.serving import PREDICTION_BATCH
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig

NOISE = 0.05


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
    learning, gain_of_idle = learning_limits(config, figures), _gain(account["idle"])
    if figures["predictors_blocked_share"] > NOISE:
        if service.trainers < service.max_trainers:
            yield Remedy(
                {"trainers": service.trainers + 1}, gain_of_idle, "predictors wait for trainers"
            )
    elif account["idle"] > NOISE * CORES and not learning:
        if service.agents < min(CORES, service.most.agents):
            because = "cores idle, and there are fewer agents than cores"
            yield Remedy({"agents": service.agents + 1}, gain_of_idle, because)
        else:
            because = "agents and predictors wait for each other: more lanes hide that"
            more = {"envs_per_agent": 2 * service.envs_per_agent}
            yield Remedy(more, gain_of_idle, because)
    batch, twice = service.update_max, 2 * service.update_max
    larger = {
        "training_batch_max": twice,
        "training_batch_min": twice,
        "training_queue": max(service.training_queue, 2 * twice),
    }
    faster = sizes.training(twice) / parts["train_only"]
    saved = 1 - 1 / faster
    most = CORES * parts["environment_only"] / figures["pps"] - 1  # if all cores only played
    yield Remedy(
        larger if service.minibatch is None else {"minibatch": twice},
        min(faster - 1, most) if learning else _gain(account["training"] * saved),
        f"an update of {twice} trains a sample {saved:.0%} cheaper than one of {batch}",
    )


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
