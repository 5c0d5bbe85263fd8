"""Estimates the memory of a run, to refuse it before any is allocated if there is too little."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from agents.environments import Spaces
from agents.games import resolve
from ga3c import backend
from ga3c.backend import Column
from ga3c.experience.batches import transition_columns
from ga3c.experience.memory import DEVICE, HOST, free_bytes, row_bytes
from ga3c.experience.ring import RingShape
from ga3c.experience.segments import SegmentBook
from ga3c.learning import networks
from ga3c.learning.algorithm import Algorithm, kept_columns
from ga3c.service.assembly import check_eviction
from ga3c.settings.train import TrainConfig

USABLE = 0.95  # share of the free memory that experience may take
AGENT_BYTES = 49e6  # an agent process with its libraries (measured 2026-11-22)
ENVIRONMENT_BYTES = 1.2e6  # an Atari environment in it (measured 2026-11-22)
WEIGHT_BYTES = 24  # per weight: itself, its gradient, Adam's two moments, room to create it
ACTIVATION_BYTES = 16  # per number in an observation trained on: cast, scaled, centred


class _Need(NamedTuple):
    """The bytes that experience takes in one kind of memory, and the bytes free there."""

    place: str
    step_bytes: float
    fixed_bytes: float
    free_bytes: int

    def bytes(self, steps: int) -> float:
        """The bytes that this many steps take."""
        return steps * self.step_bytes + self.fixed_bytes


@dataclass(frozen=True)
class Plan:
    """The number of steps kept, and the bytes that they take."""

    steps: int
    step_bytes: float  # per step: the columns of the ring, or of the slots
    fixed_bytes: float  # of the short ring kept alongside the slots
    book_bytes: float  # per step, in RAM
    copies: int  # extra copies in RAM, for a checkpoint being written
    on_device: bool
    beside_bytes: float  # other uses of RAM: processes, the network

    def check(self, asked: str, most: Callable[[int], str]) -> None:
        """Raises ValueError if the plan does not fit.

        Args:
            asked: names the settings that ask for this many steps.
            most: given how many steps fit, names the largest possible setting.
        """
        for need in self._needs():
            left = need.free_bytes * USABLE - need.fixed_bytes
            fits = max(int(left / need.step_bytes), 0)
            if self.steps > fits:
                raise ValueError(
                    f"{asked} take {need.bytes(self.steps) / 1e9:.2f} GB > "
                    f"{need.free_bytes / 1e9:.2f} GB free in {need.place}: {most(fits)}"
                )

    def __str__(self) -> str:
        need = self._needs()[0]
        return (
            f"{need.bytes(self.steps) / 1e9:.2f} GB in {need.place} "
            f"({need.free_bytes / 1e9:.1f} GB free)"
        )

    def _needs(self) -> list[_Need]:
        free_ram = max(int(free_bytes(HOST) - self.beside_bytes), 0)
        on_gpu = self.on_device and backend.has_gpu()
        in_ram = self.copies + (not on_gpu)  # copies of the experience in RAM
        step_bytes = in_ram * self.step_bytes + self.book_bytes
        ram = _Need("RAM", step_bytes, in_ram * self.fixed_bytes, free_ram)
        if not on_gpu:
            return [ram]
        free = free_bytes(DEVICE)
        gpu = _Need("the GPU's memory", self.step_bytes, self.fixed_bytes, free)
        return [gpu, *([ram] if step_bytes else [])]


def plan(config: TrainConfig, spaces: Spaces, algorithm: Algorithm) -> Plan:
    """The memory that experience will take, besides processes and network.

    Raises ValueError if they do not all fit, or if pictures would be kept in slots.
    """
    check_eviction(config, spaces)
    from_replay, replay = config.learns_from_replay, config.replay
    ring = _ring(config, spaces)
    columns = kept_columns(algorithm)
    priority: dict[str, Column] = {"priority": ((), "float32")}
    if from_replay and replay.replay_draws == "prioritised":
        columns |= priority
    steps, fixed_bytes = ring.lanes * ring.capacity, 0.0
    step_bytes = ring.bytes(columns) / steps
    if from_replay and replay.eviction == "priority":
        fixed_bytes = ring.bytes(algorithm.columns)
        whole = transition_columns(ring, algorithm.columns["action"], replay.n_step)
        trees = 1 + (replay.replay_draws == "prioritised")
        steps, step_bytes = replay.replay_steps, row_bytes(whole) + trees * row_bytes(priority)
    beside = _processes(config)
    if not backend.has_gpu():
        beside += _network(config, ring.observation_shape, spaces.is_picture)
    planned = Plan(
        steps=steps,
        step_bytes=step_bytes,
        fixed_bytes=fixed_bytes,
        book_bytes=0 if from_replay else SegmentBook.BYTES_OF_A_SLOT,
        copies=int(from_replay and replay.save_replay),
        on_device=config.service.experience == "device",
        beside_bytes=beside,
    )
    planned.check(*_asked(config, spaces.stack))
    return planned


def _ring(config: TrainConfig, spaces: Spaces) -> RingShape:
    """The ring of the configured experience."""
    service, stack = config.service, spaces.stack
    if config.learns_from_replay:
        capacity = config.replay_window(stack) + config.replay_reserve
    else:
        capacity = SegmentBook.slots_of_a_lane(service.t_max, service.pending_segments, stack)
    return RingShape(config.max_lanes, capacity, spaces.shape, spaces.dtype, stack)


def _processes(config: TrainConfig) -> float:
    """The bytes that agent processes on this machine take. Raises ValueError if they do not fit."""
    agents, envs = config.most_agents, config.service.envs_per_agent
    if config.hosts.others_may_play:
        agents = min(agents, config.hosts.agents_here)
    is_atari = resolve(config.environment.game).is_atari
    wanted = agents * (AGENT_BYTES + envs * ENVIRONMENT_BYTES * is_atari)
    _check(
        wanted,
        f"agents {agents:,} of {envs:,} environments each",
        "give fewer --agents, --max-agents or --envs-per-agent",
    )
    return wanted


def _network(config: TrainConfig, shape: tuple[int, ...], is_picture: bool) -> float:
    """The bytes of the network and of an update. Raises ValueError if they do not fit."""
    network = config.network
    if network.is_own:
        return 0.0  # known only to the user's function
    network = networks.resolved(network, shape, is_picture)
    weights = networks.count_weights(network, shape, is_picture)
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
            f"{what} take about {wanted / 1e9:.1f} GB > {free / 1e9:.1f} GB free in RAM: {instead}"
        )


def _asked(config: TrainConfig, stack: int) -> tuple[str, Callable[[int], str]]:
    """Names the settings that ask for memory; gives a `most` for `Plan.check`."""
    service, lanes = config.service, config.max_lanes
    if config.learns_from_replay:

        def most_replay(steps: int) -> str:
            in_ring = config.replay.eviction == "fifo"
            fitting = (steps - in_ring * lanes * config.replay_reserve) // 1000 * 1000
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
