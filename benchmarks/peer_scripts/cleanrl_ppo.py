"""CleanRL 1.2.0's ppo_atari.py, unchanged, on today's Gymnasium.

    python cleanrl_ppo.py GAME SEED

CleanRL is written for gym 0.23, which has no wheels for Python 3.11. This file gives its script a
module `gym` with the interface of gym 0.23 that creates Gymnasium environments. Only this interface
is adapted: learning, network and settings are CleanRL's. It prints a line
`global_step=N, episodic_return=[SCORE]` for finished games, and `SPS: N`, steps per second.
"""

import importlib.metadata
import runpy
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import ale_py
import gymnasium
import numpy as np

GREY = {"keep_dim": False}


class Seeded(gymnasium.Wrapper):
    """An environment with gym's `seed`, which takes effect at the next reset."""

    def __init__(self, environment: gymnasium.Env) -> None:
        super().__init__(environment)
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        """Seed the next reset."""
        self._seed = seed

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Reset, with the seed if there is a new one."""
        seed, self._seed = self._seed, None
        observation, info = self.env.reset(seed=seed)
        return observation, info


class Stacked(gymnasium.wrappers.FrameStackObservation):
    """The last wrapper of CleanRL's environments, with gym's `seed`."""

    def seed(self, seed: int) -> None:
        """Seed the next reset."""
        self.env.get_wrapper_attr("seed")(seed)


class SyncVectorEnv:
    """Environments stepped in turn, with the results that gym 0.23 gave."""

    def __init__(self, makers: list[Callable[[], gymnasium.Env]]) -> None:
        self._environments = [make() for make in makers]
        first = self._environments[0]
        self.single_action_space = first.action_space
        self.single_observation_space = first.observation_space

    def reset(self) -> np.ndarray:
        """The first observations."""
        return np.stack([np.asarray(each.reset()[0]) for each in self._environments])

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Observations, rewards, dones and infos; an ended episode is reset at once."""
        results = []
        for environment, action in zip(self._environments, actions, strict=True):
            seen, reward, terminated, truncated, info = environment.step(int(action))
            if terminated or truncated:
                seen, _ = environment.reset()
            results.append((np.asarray(seen), reward, terminated or truncated, info))
        seen, rewards, dones, infos = zip(*results, strict=True)
        return np.stack(seen), np.array(rewards), np.array(dones), list(infos)

    def close(self) -> None:
        """Close all environments."""
        for environment in self._environments:
            environment.close()


def old_gym() -> ModuleType:
    """A module with the parts of gym 0.23 that the script uses."""
    wrappers = gymnasium.wrappers
    module: Any = ModuleType("gym")
    module.make = lambda name: Seeded(gymnasium.make(name))
    module.spaces = gymnasium.spaces
    module.vector = SimpleNamespace(SyncVectorEnv=SyncVectorEnv)
    module.wrappers = SimpleNamespace(
        RecordEpisodeStatistics=wrappers.RecordEpisodeStatistics,
        ResizeObservation=wrappers.ResizeObservation,
        GrayScaleObservation=lambda environment: wrappers.GrayscaleObservation(environment, **GREY),
        FrameStack=Stacked,
    )
    found: ModuleType = module
    return found


def main() -> None:
    """Learn until stopped."""
    game, seed = sys.argv[1:]
    gymnasium.register_envs(ale_py)
    sys.modules["gym"] = old_gym()
    files = importlib.metadata.files("cleanrl") or []
    script = next(file for file in files if file.name == "ppo_atari.py")
    sys.argv = [str(script), "--env-id", f"{game}NoFrameskip-v4", "--seed", seed, "--cuda", "False"]
    runpy.run_path(str(script.locate()), run_name="__main__")


if __name__ == "__main__":
    main()
