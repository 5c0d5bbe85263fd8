"""Checks that a service learns each step of the tests' ledger once, in order and unchanged."""

import threading
from collections.abc import Collection
from typing import Any

import numpy as np

from ga3c import backend
from ga3c.service.service import Service
from tests.tiny import ledger_reward


class Ledgers:
    """Watches what a service with one trainer learns, in little memory.

    A lane's segments follow each other: each begins with the observation that the one before it
    ended with. So a missing, repeated or reordered step is noticed.
    """

    def __init__(self, service: Service, t_max: int, but: Collection[int]) -> None:
        """Watch all lanes of a service that has not started, except the lanes `but`."""
        self._t_max, self._but = t_max, but
        self._last: dict[int, np.ndarray] = {}  # by lane: the last observation learned
        self._lock = threading.Lock()  # guards the two below
        self._problems: list[str] = []
        self._steps = 0
        source, learn = service.model.source, service.model.learn

        def draw(lanes: Any, slots: Any) -> Any:
            return source.draw({}, lanes, slots)

        if service.model.experience.memory.on_device:
            draw = backend.compiled(draw, source.inputs)

        def observed(lanes: np.ndarray, slots: np.ndarray, progress: float) -> Any:
            self._check(lanes, [np.array(part) for part in draw(lanes, slots)])
            return learn(lanes, slots, progress=progress)

        service.model.learn = observed  # type: ignore[method-assign, assignment]

    def seen(self) -> tuple[int, list[str]]:
        """How many steps were learned, and what was wrong with them."""
        with self._lock:
            return self._steps, list(self._problems)

    def _check(self, lanes: np.ndarray, batch: list[np.ndarray]) -> None:
        observations, actions, _, rewards, _, firsts = batch[:6]
        seen = observations.reshape(len(actions), self._t_max + 1, -1)
        for lane, *segment in zip(
            np.asarray(lanes).reshape(len(actions), -1)[:, 0],
            seen,
            actions,
            rewards,
            firsts,
            strict=True,
        ):
            if int(lane) not in self._but:
                problem = self._wrong(int(lane), *segment)
                with self._lock:
                    self._steps += int((segment[-1] == 0).sum())
                    if problem and len(self._problems) < 10:
                        self._problems.append(f"lane {lane}: {problem}")

    def _wrong(
        self,
        lane: int,
        seen: np.ndarray,  # [t + 1, 4]
        actions: np.ndarray,  # [t]
        rewards: np.ndarray,  # [t]
        firsts: np.ndarray,  # [t] whether the next observation comes from a reset
    ) -> str:
        """What is wrong with a lane's next segment; empty if nothing is."""
        before, self._last[lane] = self._last.get(lane), seen[-1]
        if before is not None and not np.array_equal(before, seen[0]):
            return f"{before.tolist()} is followed by {seen[0].tolist()}"
        plays = firsts == 0
        numbers, episodes, steps, _ = seen[:-1][plays].T
        expected = np.stack([numbers, episodes, steps + 1, actions[plays]], axis=1)
        if not np.array_equal(seen[1:][plays], expected):
            return f"{seen[1:][plays].tolist()} are not {expected.tolist()}"
        again = seen[1:][~plays]
        if not np.array_equal(again[:, :2] - [0, 1], seen[:-1][~plays][:, :2]) or again[:, 2].any():
            return f"{again.tolist()} do not begin the next episode"
        made = zip(expected[:, 2], expected[:, 3], strict=True)
        paid = [ledger_reward(int(step), int(action)) for step, action in made]
        right = np.array_equal(rewards[plays], np.array(paid, np.float32))
        return "" if right else f"{rewards[plays].tolist()} are not the rewards {paid}"
