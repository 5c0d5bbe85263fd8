"""Stable-Baselines3's A2C or PPO on an Atari game, with the settings of its own RL Zoo.

    python stable_baselines.py a2c|ppo GAME SEED

Runs in the environment of requirements/peers.txt until stopped. Each rollout and each finished game
prints a line: `global_step=N` or `global_step=N, episodic_return=SCORE`.
"""

import sys
from typing import Any

import ale_py
import gymnasium
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecFrameStack

STEPS = 10_000_000  # the length of PPO's schedules


class Printed(BaseCallback):
    """Prints each rollout and each finished game."""

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                score = info["episode"]["r"]
                print(f"global_step={self.num_timesteps}, episodic_return={score}", flush=True)
        return True

    def _on_rollout_end(self) -> None:
        print(f"global_step={self.num_timesteps}", flush=True)


def settings(name: str) -> tuple[Any, int, dict[str, Any]]:
    """The class, the number of environments and the settings, as in RL Zoo."""
    if name == "a2c":
        optimizer = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
        return A2C, 16, {"ent_coef": 0.01, "vf_coef": 0.25, "policy_kwargs": optimizer}
    ppo = {
        "n_steps": 128,
        "n_epochs": 4,
        "batch_size": 256,
        "learning_rate": lambda left: left * 2.5e-4,
        "clip_range": lambda left: left * 0.1,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
    }
    return PPO, 8, ppo


def main() -> None:
    """Learn until stopped."""
    name, game, seed = sys.argv[1:]
    gymnasium.register_envs(ale_py)
    make, count, given = settings(name)
    environments = make_atari_env(f"{game}NoFrameskip-v4", n_envs=count, seed=int(seed))
    model = make("CnnPolicy", VecFrameStack(environments, 4), seed=int(seed), device="cpu", **given)
    model.learn(STEPS, callback=Printed())


if __name__ == "__main__":
    main()
