"""Environments for tests: learned in seconds, made to trace every step, or broken in some way.

Their ids are `tests.tiny:NAME`, so that Gymnasium imports this module in every process.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Observation = np.ndarray
Info = dict[str, Any]

CORRIDOR_LENGTH = 7
CATCH_SIZE = 20  # the smallest picture that network `small` takes without padding


class Corridor(gymnasium.Env[Observation, np.int64]):
    """Walk right: +1 at the right end, -1 at the left one; both terminate.

    A random walk scores 0 on average, the best policy 1. It is registered with a time limit, which
    truncates. `is_success` in its info says whether the right end was reached, and `position` where
    it stands.
    """

    observation_space = spaces.Box(0.0, 1.0, (CORRIDOR_LENGTH,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._position = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        super().reset(seed=seed)
        self._position = CORRIDOR_LENGTH // 2
        return self._see(), {}

    def step(self, action: np.int64) -> Any:
        self._position += 1 if action else -1
        ended = self._position in (0, CORRIDOR_LENGTH - 1)
        reward = 0.0 if not ended else 1.0 if self._position else -1.0
        info = {"is_success": reward > 0, "position": self._position}
        return self._see(), reward, ended, False, info

    def _see(self) -> Observation:
        return np.eye(CORRIDOR_LENGTH, dtype=np.float32)[self._position]


class Catch(gymnasium.Env[Observation, np.int64]):
    """Pictures: move the paddle under the falling ball. +1 if caught, else -1; both terminate."""

    observation_space = spaces.Box(0, 255, (CATCH_SIZE, CATCH_SIZE), np.uint8)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self._ball = self._paddle = self._height = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        super().reset(seed=seed)
        self._ball = int(self.np_random.integers(CATCH_SIZE // 2)) * 2
        self._paddle = CATCH_SIZE // 2
        self._height = 0
        return self._see(), {}

    def step(self, action: np.int64) -> Any:
        self._paddle = min(max(self._paddle + 2 * (int(action) - 1), 0), CATCH_SIZE - 2)
        self._height += 2
        ended = self._height >= CATCH_SIZE - 2
        reward = 0.0 if not ended else 1.0 if self._ball == self._paddle else -1.0
        return self._see(), reward, ended, False, {}

    def _see(self) -> Observation:
        picture = np.zeros((CATCH_SIZE, CATCH_SIZE), np.uint8)
        picture[-2:, self._paddle : self._paddle + 2] = 128
        picture[self._height : self._height + 2, self._ball : self._ball + 2] = 255
        return picture


class Ledger(gymnasium.Env[Observation, np.int64]):
    """Every observation is different, and says where it belongs.

    An observation is [number of the environment, episode, step, previous action]. `ledger_reward`
    is the reward of each step. Episodes have 1 to 12 steps and end as `ledger_end` says.
    """

    observation_space = spaces.Box(0.0, 2.0**24, (4,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self._number = 0
        self._episode = self._step = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        super().reset(seed=seed)
        if not self._number:
            self._number = int(self.np_random.integers(1, 2**24))
        self._episode, self._step = self._episode + 1, 0
        return self._see(0), {}

    def step(self, action: np.int64) -> Any:
        self._step += 1
        terminated, truncated = ledger_end(self._number, self._episode, self._step)
        reward = ledger_reward(self._step, int(action))
        return self._see(int(action)), reward, terminated, truncated, {}

    def _see(self, action: int) -> Observation:
        return np.array([self._number, self._episode, self._step, action], np.float32)


def ledger_reward(step: int, action: int) -> float:
    """The reward that comes with a step's observation, for the action before it."""
    return step / 16 + action / 4


def ledger_end(number: int, episode: int, step: int) -> tuple[bool, bool]:
    """Whether the step terminates and whether it truncates the episode."""
    length = 1 + (number + 5 * episode) % 12
    return step == length and episode % 2 == 0, step == length and episode % 2 == 1


class Fallen(Corridor):
    """Its second step raises: the trial step before a run succeeds, but every agent fails."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        self._is_first = True
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> Any:
        if not self._is_first:
            print("it began to crack")
            raise RuntimeError("the corridor has fallen in")
        self._is_first = False
        return super().step(action)


class Reading(Ledger):
    """Starts a program that reads the standard input to its end."""

    def __init__(self) -> None:
        super().__init__()
        subprocess.run(["cat"], check=True)


class Unmade(Corridor):
    """Its constructor raises, but only after 0.5 s, when the agent has connected."""

    def __init__(self, **given: object) -> None:
        time.sleep(0.5)
        raise RuntimeError("there is no floor")


class Broken(Corridor):
    """Ignores its actions, ends no game, and has a `fault` from step `at_step` of each game on."""

    def __init__(self, fault: str, at_step: int = 5) -> None:
        super().__init__()
        self._fault, self._at_step, self._made = fault, at_step, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        self._made = 0
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> Any:
        self._made += 1
        self._position = 1 + self._made % 2
        observation, reward = self._see(), 0.0
        if self._made >= self._at_step:
            match self._fault:
                case "breakpoint":
                    breakpoint()
                case "raises":
                    raise RuntimeError("the floor has given way")
                case "observation":
                    observation[3] = np.nan
                case "reward":
                    reward = float("nan")
                case "large reward":
                    reward = 1e39
                case "hangs":
                    time.sleep(600)
                case "holds the lock":
                    ctypes.PyDLL(None).sleep(60)  # PyDLL keeps the GIL, so no thread runs
        return observation, reward, False, False, {}


class Chatty(Corridor):
    """Each step writes 100 kB to standard output and as much to standard error."""

    def step(self, action: np.int64) -> Any:
        for stream in (sys.stdout, sys.stderr):
            print("x" * 100_000, file=stream)
        return super().step(action)


class Careless(Corridor):
    """Its steps catch every exception, as in some environments; a variable sets their duration."""

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        with contextlib.suppress(BaseException):
            time.sleep(float(os.environ.get("GA3C_TEST_CARELESS_S", "0")))
        return super().step(action)


class Shaped(gymnasium.Env[Observation, np.int64]):
    """Constant observations of any shape, any number of actions, and games of 10 steps."""

    def __init__(self, shape: tuple[int, ...], dtype: str, num_actions: int) -> None:
        self.observation_space = spaces.Box(0, 1, shape, np.dtype(dtype).type)
        self.action_space = spaces.Discrete(num_actions)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        super().reset(seed=seed)
        return np.ones(self.observation_space.shape or (), self.observation_space.dtype), {}

    def step(self, action: np.int64) -> Any:
        assert self.action_space.contains(action)
        return *self.reset()[:1], 1.0, False, False, {}


class Reach(gymnasium.Env[Observation, np.ndarray]):
    """Five times, repeat the first number seen; the reward is 1 minus the distance.

    Actions range from -2 to 6, as do the targets, to which the numbers in [-1, 1] are scaled. So a
    constant action scores at most 5 (1 - 2) = -5 on average.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-2.0, 6.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._see(), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action)
        reward = 1.0 - abs(float(action[0]) - (2.0 + 4.0 * float(self._seen[0])))
        self._steps += 1
        return self._see(), reward, self._steps == 5, False, {}

    def _see(self) -> Observation:
        self._seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._seen


class Unbounded(Corridor):
    """Its actions have no bounds, so a policy's numbers in [-1, 1] cannot be scaled to them."""

    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)  # type: ignore[assignment]


gymnasium.register("Reach-v0", "tests.tiny:Reach")
gymnasium.register("Unbounded-v0", "tests.tiny:Unbounded")
gymnasium.register("Corridor-v0", "tests.tiny:Corridor", max_episode_steps=20)
gymnasium.register("Catch-v0", "tests.tiny:Catch", max_episode_steps=50)
gymnasium.register("Ledger-v0", "tests.tiny:Ledger")
gymnasium.register("Reading-v0", "tests.tiny:Reading")
gymnasium.register("Fallen-v0", "tests.tiny:Fallen")
gymnasium.register("Unmade-v0", "tests.tiny:Unmade")
gymnasium.register("Careless-v0", "tests.tiny:Careless", max_episode_steps=20)
gymnasium.register("Chatty-v0", "tests.tiny:Chatty", max_episode_steps=20)
for fault in (
    "raises",
    "observation",
    "reward",
    "large reward",
    "hangs",
    "holds the lock",
    "breakpoint",
):
    gymnasium.register(
        f"Broken-{fault.replace(' ', '-')}-v0",
        "tests.tiny:Broken",
        max_episode_steps=20,
        kwargs={"fault": fault},
    )

for name, shape, dtype, num_actions in (
    ("Wide", (5000,), "float32", 2),
    ("ManyActions", (4,), "float32", 5000),
    ("WidePicture", (20, 5000), "uint8", 2),
):
    gymnasium.register(
        f"{name}-v0",
        "tests.tiny:Shaped",
        max_episode_steps=10,
        kwargs={"shape": shape, "dtype": dtype, "num_actions": num_actions},
    )
