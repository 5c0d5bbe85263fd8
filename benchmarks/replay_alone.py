"""A model with a full replay, without a service, which `ga3c benchmark replay` measures."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from agents.environments import Spaces
from ga3c import backend
from ga3c.experience.memory import DEVICE, HOST
from ga3c.experience.replay import Replay
from ga3c.experience.replay_book import ReplayBook
from ga3c.service.assembly import build_algorithm, build_model, build_source
from ga3c.settings.presets import PRESETS
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig

LANES = 50
CHUNK = 20_000  # steps written at once while a replay is filled


def with_sum(update: Callable[..., None]) -> Callable[..., Any]:
    """`update`, which then returns the sum of its first input, so that a caller can wait for it.

    JAX only dispatches a compiled function; all that it computes is there at the same time.
    """

    def updated(first: Any, *others: Any) -> Any:
        update(first, *others)
        return keras.ops.sum(first)

    return updated


class Alone:
    """A model with a full replay, without a service."""

    def __init__(
        self, spaces: Spaces, steps: int, batch: int, on_device: bool, draws: str = "uniform"
    ) -> None:
        config = _configured(spaces, steps, batch, draws)
        window, n_step = config.replay_window(spaces.stack), config.replay.n_step
        self.book = ReplayBook(
            lanes=LANES, window=window, reserve=CHUNK // LANES, n_step=n_step, stack=spaces.stack
        )
        algorithm = build_algorithm(config, spaces.actions)
        memory = DEVICE if on_device else HOST
        source = build_source(config, spaces, algorithm, self.book, memory)
        assert isinstance(source, Replay)
        self._replay, self._ring = source, source.experience.ring
        self.model = build_model(config, spaces, algorithm, source)
        self._names = ("frame", "age", "reward", "discount", "first", "action")
        self._write = self._writer(on_device)
        self._fill(window)

    def _writer(self, on_device: bool) -> Callable[..., Any]:
        experience, names = self.model.experience, self._names

        def write(rows: Any, *values: Any) -> None:
            experience.write(rows, dict(zip(names, values, strict=True)))

        if not on_device:
            return write
        columns = {**self._ring.columns(), "action": ((), "int32")}
        parts = [((None, *columns[name][0]), columns[name][1]) for name in names]
        return backend.compiled(with_sum(write), [((None,), "int32"), *parts])

    def _fill(self, window: int) -> None:
        size = CHUNK // LANES
        self.block(size * LANES)
        for _ in range(-(-window // size)):
            self.add(CHUNK)

    def block(self, steps: int) -> None:
        """Make the steps that `add` writes. They are random: zeros might take no memory."""
        random = np.random.default_rng(0)
        shape, dtype = self._ring.columns()["frame"]
        values = random.integers(0, 255, (steps, *shape)).astype(dtype)
        ones = np.ones(steps, np.float32)
        ages = np.full(steps, self._ring.stack - 1, np.int32)
        actions = np.zeros(steps, np.int32)
        self._values = (values, ages, ones, ones, 0 * ones, actions)

    def add(self, steps: int) -> None:
        """Write the first `steps` steps of the block over all lanes, and make them drawable."""
        lanes = np.arange(LANES, dtype=np.int32)
        slots = [self.book.advance(lanes, lanes < 0, 0)[0] for _ in range(steps // LANES)]
        rows = self._ring.rows(lanes, np.concatenate(slots).reshape(-1, LANES)).ravel()
        count = len(rows)
        written = self._write(rows.astype(np.int32), *(value[:count] for value in self._values))
        self.book.complete(lanes)
        self._replay.flush()
        np.asarray(written)  # waits for the device

    def train(self) -> None:
        """Make one update."""
        self.model.learn(progress=0.0)


def _configured(spaces: Spaces, steps: int, batch: int, draws: Any) -> TrainConfig:
    """Parr's settings, with the small network for pictures."""
    config = PRESETS["in-gpu-replay"]
    config = replace(
        config,
        service=ServiceConfig(agents=1, max_agents=1, envs_per_agent=LANES, groups=1),
        replay=replace(
            config.replay,
            batch_size=batch,
            replay_steps=steps,
            replay_min_steps=min(config.replay.replay_min_steps, steps),
            update_size=1,
            replay_draws=draws,
        ),
    )
    if spaces.is_picture:
        return replace(config, network=replace(config.network, network="small"))
    return config
