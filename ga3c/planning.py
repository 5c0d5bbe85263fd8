"""How much memory experience takes: said, and refused, before any of it is allocated."""

import math
from typing import NamedTuple

import numpy as np

from agents.environments import Spaces
from ga3c import backend
from ga3c.backend import Column
from ga3c.experience.memory import DEVICE, HOST, free_bytes
from ga3c.experience.ring import RingShape
from ga3c.experience.segments import Lanes
from ga3c.service.assembly import build_algorithm
from ga3c.settings.train import TrainConfig

USABLE = 0.95  # of what is free
BOOK: Column = ((), "int64")  # which weights acted, for each step of an on-policy ring, in RAM


class _Need(NamedTuple):
    """Bytes of one step, for all the steps of the rings, in one place."""

    place: str
    step_bytes: float
    free_bytes: int


def plan(config: TrainConfig, spaces: Spaces) -> str:
    """How much memory the rings of experience will take and where, in words.

    Raises ValueError if that does not fit there, with the most that does.
    """
    from_replay = config.learns_from_replay
    lanes = config.max_lanes
    if from_replay:
        capacity = config.replay_window + config.replay_reserve
    else:
        pending = config.service.pending_segments
        capacity = Lanes.slots_of_a_lane(config.a3c.t_max, pending, spaces.stack)
    ring = RingShape(lanes, capacity, spaces.shape, spaces.dtype, spaces.stack)
    needs = _needs(config, spaces, ring)
    for need in needs:
        most = int(need.free_bytes * USABLE / need.step_bytes)
        if lanes * capacity > most:
            needed = lanes * capacity * need.step_bytes
            raise ValueError(
                f"{_asked(config)} take {needed / 1e9:.2f} GB > {need.free_bytes / 1e9:.2f} GB "
                f"that are free in {need.place}: {_fits(config, spaces, most)}"
            )
    first = needs[0]
    return (
        f"replay of {lanes * config.replay_window:,} steps, "
        f"{lanes * capacity * first.step_bytes / 1e9:.2f} GB in {first.place} "
        f"({first.free_bytes / 1e9:.1f} GB free)"
        if from_replay
        else f"experience of {lanes * capacity:,} steps in {first.place}"
    )


def _needs(config: TrainConfig, spaces: Spaces, ring: RingShape) -> list[_Need]:
    on_device = config.service.experience == "device"
    columns = dict(build_algorithm(config, spaces.num_actions).columns)
    if config.learns_from_replay and config.replay.replay_draws == "prioritised":
        columns["priority"] = ((), "float32")
    step = ring.bytes(columns) / (ring.lanes * ring.capacity)
    in_ram = 0.0  # besides the ring
    if not config.learns_from_replay:
        in_ram += np.dtype(BOOK[1]).itemsize
    elif config.replay.save_replay:
        in_ram += step  # a checkpoint's copy
    free_ram = free_bytes(HOST)
    if on_device and backend.has_gpu():
        gpu = _Need("the GPU's memory", step, free_bytes(DEVICE))
        return [gpu, *([_Need("RAM", in_ram, free_ram)] if in_ram else [])]
    return [_Need("RAM", step + in_ram, free_ram)]


def _asked(config: TrainConfig) -> str:
    if config.learns_from_replay:
        return f"replay_steps {config.replay.replay_steps:,}"
    return (
        f"pending_segments {config.service.pending_segments:,} of {config.a3c.t_max} steps for "
        f"{config.max_lanes:,} environments"
    )


def _fits(config: TrainConfig, spaces: Spaces, most_steps: int) -> str:
    """The most that can be asked for where so many steps have room."""
    lanes = config.max_lanes
    if config.learns_from_replay:
        steps = (most_steps - lanes * config.replay_reserve) // 1000 * 1000
        return f"at most {max(steps, 0):,} fit"
    segments = math.floor((most_steps / lanes - spaces.stack) / config.a3c.t_max)
    return f"at most {max(segments, 0):,} segments fit"
