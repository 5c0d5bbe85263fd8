"""The tasks of DeepMind's Control Suite as Gymnasium environments: `dm_control/humanoid-stand`.

An observation is a float32 vector of all of a task's sensors. The angle of a reacher's shoulder,
which can spin, is wrapped to one turn unless the suite's own value is requested. An episode that
ends at its time limit counts as truncated, because the suite gives it a discount of 1.
"""

import importlib.util
import os
import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from agents.extras import missing

NAMESPACE = "dm_control/"
PICTURE = 480  # height and width of a rendered picture, in pixels
WITHOUT_PICTURES = ("MUJOCO_GL", "disable")  # otherwise MuJoCo looks for a display or a GPU
# Observation entries, by domain, that grow with each turn of a spinning joint. A reacher's shoulder
# reaches tens of radians during training; after normalisation, one radian is then almost nothing.
SPINNING = {"reacher": [0]}


class MissingPackage(ValueError):
    """A game needs a package that is not installed or cannot be imported."""


def _suite() -> Any:
    """dm_control's suite. Raises MissingPackage."""
    if importlib.util.find_spec("dm_control") is None:
        raise MissingPackage(missing("dm_control", "control"))
    os.environ.setdefault(*WITHOUT_PICTURES)
    try:
        from dm_control import suite
    except Exception as error:  # it looks for OpenGL, and may raise anything
        words = f"dm_control cannot be imported: {type(error).__name__}: {error}"
        raise MissingPackage(f"{words} (MUJOCO_GL is {os.environ['MUJOCO_GL']})") from error
    return suite


def tasks() -> list[str]:
    """The names of all tasks. Raises MissingPackage."""
    return sorted(f"{NAMESPACE}{domain}-{task}" for domain, task in _suite().ALL_TASKS)


def plain(name: str) -> str:
    """`name` in lower case, without underscores and hyphens, to compare names."""
    return re.sub(r"[_-]", "", name).lower()


def register(name: str) -> str | None:
    """Register the task with Gymnasium. Returns its id; None if there is no such task.

    Raises MissingPackage.
    """
    by_plain = {plain(task): task for task in tasks()}
    found = by_plain.get(plain(name.lower().removesuffix("-v0")))
    if found and found not in gymnasium.registry:
        domain, _, task = found.removeprefix(NAMESPACE).partition("-")
        given = {"domain": domain, "task": task}
        gymnasium.register(found, "agents.control:Task", kwargs=given, disable_env_checker=True)
    return found


class Task(gymnasium.Env[np.ndarray, np.ndarray]):
    """One task of the suite."""

    def __init__(
        self, domain: str, task: str, render_mode: str | None = None, wrap_angles: bool = True
    ) -> None:
        """Args: wrap_angles: wrap the angle of a spinning joint to the range from -pi to pi."""
        self._environment = _suite().load(domain, task)
        self._wrapped = SPINNING.get(domain, []) if wrap_angles else []
        self.render_mode = render_mode
        rate = 1.0 / self._environment.control_timestep()
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": rate}
        sensors = self._environment.observation_spec().values()
        size = sum(int(np.prod(sensor.shape)) for sensor in sensors)
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        spec = self._environment.action_spec()
        self.action_space = Box(
            spec.minimum.astype(np.float32), spec.maximum.astype(np.float32), dtype=np.float32
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; the same seed always starts the same one."""
        super().reset(seed=seed)
        if seed is not None:
            self._environment.task.random.seed(seed)
        return self._seen(self._environment.reset()), {}

    def step(self, action: np.ndarray) -> Any:
        """Take the action, float32 [size]."""
        answer = self._environment.step(action)
        terminated = answer.last() and answer.discount == 0
        truncated = answer.last() and not terminated
        return self._seen(answer), float(answer.reward), terminated, truncated, {}

    def render(self) -> Any:
        """The view of the first camera, [480, 480, 3] uint8."""
        return self._environment.physics.render(PICTURE, PICTURE, camera_id=0)

    def close(self) -> None:
        """Free the simulation."""
        self._environment.close()

    def _seen(self, answer: Any) -> np.ndarray:
        parts = [np.ravel(sensor) for sensor in answer.observation.values()]
        seen = np.concatenate(parts)
        seen[self._wrapped] = np.remainder(seen[self._wrapped] + np.pi, 2 * np.pi) - np.pi
        return seen.astype(np.float32)
