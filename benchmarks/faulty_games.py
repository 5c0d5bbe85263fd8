"""Games that break on command: `benchmarks.faulty_games:BreakableCart-v0`, and ...Pong.

A file in the directory `orders` is an order to break in the way that its name says. The environment
that removes the file obeys, so each order is obeyed once; `always-...` stays, and all obey it. The
environments that the service creates to check a game before a run ignore orders.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any, TypeVar

import ale_py
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing

from agents.link import Link
from agents.worker import Task

LOOK_S = 0.05  # between two checks for an order
HANG_S = 3600.0
SLOW = 100  # after the order `slow`, each step takes this many times as long for SLOW_S
SLOW_S = 8.0
REPEATS = 20_000  # how often an agent that reads nothing resends its steps
EXIT_CODE = 7
BROKEN_REWARDS = {
    "nan in reward": (np.nan,),
    "infinity in reward": (np.inf,),
    "huge reward": (3e38, 3e38, -3e38, -3e38),  # finite in float32, but a sum of two is not
    "large reward": (1e19, -1e19),  # the squared error is finite, but no gradient norm is
}
"""By order: the rewards of the next steps. An episode's score is finite if these are."""
IN_AGENT = "ga3c" not in sys.modules  # no agent imports ga3c
Caller = TypeVar("Caller")


class Breakable(gymnasium.Wrapper):
    """A game that obeys the orders in a directory."""

    def __init__(self, game: gymnasium.Env, orders: str) -> None:
        super().__init__(game)
        self._orders = Path(orders)
        self._look_s = 0.0
        self._slow_until_s = 0.0
        self._rewards: list[float] = []  # of the next steps

    def step(self, action: Any) -> Any:
        """Take a step, or break while taking it."""
        order, began_s = self._order(), time.perf_counter()
        self._obey(order)
        observation, reward, *rest = self.env.step(action)
        if time.monotonic() < self._slow_until_s:
            time.sleep((SLOW - 1) * (time.perf_counter() - began_s))
        self._rewards += BROKEN_REWARDS.get(order, ())
        reward = self._rewards.pop(0) if self._rewards else reward
        return self._broken(order, observation), reward, *rest

    def _order(self) -> str:
        """The order that this environment must obey now; empty if none."""
        now_s = time.monotonic()
        if not IN_AGENT or now_s < self._look_s:
            return ""
        self._look_s = now_s + LOOK_S
        for name in os.listdir(self._orders):
            if name.startswith("always-"):
                self._look_s = now_s
                return name.removeprefix("always-")
            try:
                os.unlink(self._orders / name)
            except FileNotFoundError:  # another environment obeys
                continue
            return name
        return ""

    def _obey(self, order: str) -> None:
        match order:
            case "raises":
                raise RuntimeError("this game was told to raise")
            case "hangs":
                time.sleep(HANG_S)
            case "exits":
                sys.exit(EXIT_CODE)
            case "ends at once":
                os._exit(EXIT_CODE)
            case "slow":
                self._slow_until_s = time.monotonic() + SLOW_S
            case "never reads":
                _repeat_unread()
            case "tells":
                told = self._orders.with_name("told")
                told.with_suffix(".new").write_text(_of_caller("task", Task).to_json())
                told.with_suffix(".new").rename(told.with_suffix(f".{os.getpid()}"))

    def _broken(self, order: str, observation: np.ndarray) -> Any:
        match order:
            case "shape":
                return observation[:-1]
            case "type":
                return observation.astype(np.complex64)
            case "nan in observation":
                return np.full_like(observation, np.nan)
            case "infinity in observation":
                return np.full_like(observation, np.inf)
        return observation


def _of_caller(name: str, kind: type[Caller]) -> Caller:
    """The local variable `name` of a caller of this environment. Raises LookupError."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if isinstance(value := frame.f_locals.get(name), kind):
            return value
    raise LookupError(f"no caller has a {name}")


def _repeat_unread() -> None:
    """Send the last steps again and again, as after a lost connection, and read no answer."""
    link = _of_caller("link", Link)
    for _ in range(REPEATS):
        for sent in link._sent.values():
            link._socket.send_multipart(sent.parts)
    time.sleep(HANG_S)


def cart(orders: str) -> gymnasium.Env:
    """CartPole, which starts and runs fast."""
    return Breakable(gymnasium.make("CartPole-v1"), orders)


def pong(orders: str) -> gymnasium.Env:
    """Pong in grey pictures, one for every four frames."""
    gymnasium.register_envs(ale_py)
    game = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return Breakable(AtariPreprocessing(game), orders)


gymnasium.register("BreakableCart-v0", "benchmarks.faulty_games:cart")
gymnasium.register("BreakablePong-v0", "benchmarks.faulty_games:pong")
