"""How much memory a run will take: refused, if there is too little, before any is allocated."""

import math
from collections.abc import Callable

from agents.environments import Spaces
from agents.games import resolve
from ga3c import backend
from ga3c.experience.memory import HOST, free_bytes
from ga3c.experience.planning import USABLE, Plan
from ga3c.experience.ring import RingShape
from ga3c.experience.segments import SegmentBook
from ga3c.learning import networks
from ga3c.learning.algorithm import Algorithm
from ga3c.settings.train import TrainConfig

AGENT_BYTES = 49e6  # an agent process with its libraries (measured 2026-11-22)
ENVIRONMENT_BYTES = 1.2e6  # an Atari environment in it (measured 2026-11-22)
WEIGHT_BYTES = 24  # of each weight: itself, its gradient, Adam's two moments, room to make it
ACTIVATION_BYTES = 16  # of each number of an observation that is trained: cast, scaled, centred


def plan(config: TrainConfig, spaces: Spaces, algorithm: Algorithm) -> Plan:
    """How much memory experience will take, beside processes and network.

    Raises ValueError if all of it does not fit.
    """
    service, lanes, stack = config.service, config.max_lanes, spaces.stack
    columns, in_ram = dict(algorithm.columns), 0.0
    if config.learns_from_replay:
        capacity = config.replay_window + config.replay_reserve
        if config.replay.replay_draws == "prioritised":
            columns["priority"] = ((), "float32")
    else:
        capacity = SegmentBook.slots_of_a_lane(service.t_max, service.pending_segments, stack)
        in_ram = SegmentBook.BYTES_OF_A_SLOT
    ring = RingShape(lanes, capacity, spaces.shape, spaces.dtype, stack)
    step_bytes = ring.bytes(columns) / (lanes * capacity)
    if config.learns_from_replay and config.replay.save_replay:
        in_ram = step_bytes  # a checkpoint holds a copy of the ring
    beside = _processes(config)
    if not backend.has_gpu():
        beside += _network(config, ring.observation_shape, spaces.is_picture)
    planned = Plan(lanes * capacity, step_bytes, in_ram, service.experience == "device", beside)
    planned.check(*_asked(config, stack))
    return planned


def _processes(config: TrainConfig) -> float:
    """The bytes that agent processes take. Raises ValueError if they do not fit."""
    service = config.service
    envs, is_atari = service.envs_per_agent, resolve(config.environment.game).is_atari
    wanted = service.most.agents * (AGENT_BYTES + envs * ENVIRONMENT_BYTES * is_atari)
    _check(
        wanted,
        f"agents {service.most.agents:,} of {envs:,} environments each",
        "give fewer --agents, --max-agents or --envs-per-agent",
    )
    return wanted


def _network(config: TrainConfig, shape: tuple[int, ...], is_picture: bool) -> float:
    """The bytes of the network and of an update. Raises ValueError if they do not fit."""
    network = config.network
    if network.is_own:
        return 0.0  # only its function knows
    network = networks.chosen(network, shape, is_picture)
    weights = networks.weights(network, shape, is_picture)
    torsos = 1 + (network.separate_value or config.dqn.dueling)
    trained = config.update_samples
    numbers = 2 * trained * math.prod(shape)  # at most two observations a sample
    wanted = torsos * weights * WEIGHT_BYTES + numbers * ACTIVATION_BYTES
    _check(
        wanted,
        f"network {network.network} of {weights:,} weights, and updates of {trained:,} "
        f"observations of {' x '.join(map(str, shape))}",
        "give a smaller --frame-size, network or batch",
    )
    return wanted


def _check(wanted: float, what: str, instead: str) -> None:
    free = free_bytes(HOST)
    if wanted > USABLE * free:
        raise ValueError(
            f"{what} take about {wanted / 1e9:.1f} GB > {free / 1e9:.1f} GB that are free in RAM: "
            f"{instead}"
        )


def _asked(config: TrainConfig, stack: int) -> tuple[str, Callable[[int], str]]:
    """The settings that ask for memory, and a function: the largest setting for given steps."""
    service, lanes = config.service, config.max_lanes
    if config.learns_from_replay:

        def most_replay(steps: int) -> str:
            fitting = (steps - lanes * config.replay_reserve) // 1000 * 1000
            return f"at most {max(fitting, 0):,} fit"

        return f"replay_steps {config.replay.replay_steps:,}", most_replay

    def most_segments(steps: int) -> str:
        fitting = math.floor((steps / lanes - stack) / service.t_max)
        return f"at most {max(fitting, 0):,} segments fit"

    asked = (
        f"pending_segments {service.pending_segments:,} of {service.t_max} steps for "
        f"{lanes:,} environments"
    )
    return asked, most_segments
