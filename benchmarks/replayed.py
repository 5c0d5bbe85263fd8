"""Environments whose steps cost almost nothing: every lane replays one recorded stream of Pong.

The id is `benchmarks.replayed:Replayed-v0`. Use it to measure everything between emulator and
model, without either of them.
"""

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

STEPS = 512
SIZE = 84
ACTIONS = 6


def record(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames, uint8 [steps, 84, 84], and rewards, float64 [steps], of Pong with random actions."""
    pong = AtariVectorEnv("pong", 1, img_height=SIZE, img_width=SIZE, stack_num=1)
    frames, rewards = np.empty((steps, SIZE, SIZE), np.uint8), np.zeros(steps)
    random = np.random.default_rng(0)
    frames[0] = pong.reset(seed=0)[0][0, 0]
    for step in range(1, steps):
        action = random.integers(0, ACTIONS, 1, np.int32)
        stacks, reward, *_ = pong.step(action)
        frames[step], rewards[step] = stacks[0, 0], reward[0]
    pong.close()
    return frames, rewards


class Replayed(VectorEnv):
    """`num_envs` lanes, each at its own place in the stream. The last frame ends the episode."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  gymnasium's own form

    def __init__(self, num_envs: int, **_: Any) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, (SIZE, SIZE), np.uint8)
        self.single_action_space = spaces.Discrete(ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._frames, self._rewards = record(STEPS)
        self._places = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Move every lane to its first frame."""
        self._places = np.arange(self.num_envs) * 37 % STEPS
        return self._frames[self._places], {}

    def step(self, actions: Any) -> Any:
        """Advance every lane by one frame, from the end of the stream back to its start."""
        self._places = (self._places + 1) % STEPS
        terminated = self._places == STEPS - 1
        frames, rewards = self._frames[self._places], self._rewards[self._places]
        return frames, rewards, terminated, np.zeros(self.num_envs, np.bool_), {}


gymnasium.register("Replayed-v0", vector_entry_point="benchmarks.replayed:Replayed")
