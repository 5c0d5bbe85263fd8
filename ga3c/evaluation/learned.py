"""A run's policy for use from Python: actions, values, and environments to act in."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.spaces.utils import flatten
from numpy.typing import ArrayLike

from agents.environments import EnvironmentConfig, Environments
from agents.messages import Step
from agents.spaces import actions_of, own_actions
from ga3c.evaluation.chosen import load, policy_of
from ga3c.evaluation.games import chosen_actions
from ga3c.evaluation.options import LearnedConfig
from ga3c.evaluation.policy import Policy, Stacks
from ga3c.evaluation.protocols import Protocol
from ga3c.settings.checks import check_seed
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig

GREEDY, SAMPLE = Protocol("greedy"), Protocol("sample")


class Transition(NamedTuple):
    """The result of a step of n environments."""

    observations: np.ndarray  # [n, ...], as `LearnedPolicy.act` takes them
    rewards: np.ndarray  # [n] float32, not clipped
    terminated: np.ndarray  # [n] bool, where the game has ended
    truncated: np.ndarray  # [n] bool, where it was cut short


class StackedEnvironments:
    """n environments that step together and return what the network sees. Use from one thread.

    Where a game has ended, the next step starts another: its action is ignored, and its reward is
    0. A lost life does not end a game.
    """

    def __init__(self, config: EnvironmentConfig, n: int, seed: int) -> None:
        """Raises ValueError if n or seed is invalid, and FailedEnvironment if the game fails."""
        check_seed(seed)
        config = replace(config, life_loss_terminates=False)
        self._environments = Environments(config, n, CORES)
        self._stacks = Stacks(self._environments.spaces, n)
        self._seed: int | None = seed
        self.num_envs = n
        self.actions = self._environments.spaces.actions
        """The valid actions."""
        self.num_actions = self.actions.count
        """The number of actions; 0 if they are continuous."""

    def reset(self) -> np.ndarray:
        """Start a game in each environment: the first time those of the seed, later others.

        Returns observations [n, ...].
        """
        seed, self._seed = self._seed, None
        return self._seen(self._environments.reset(seed))

    def step(self, actions: ArrayLike) -> Transition:
        """Take `actions`: integers [n] from 0 on, or floats [n, size] in [-1, 1].

        Raises ValueError if one is invalid.
        """
        taken, shape = np.asarray(actions), (self.num_envs, *self.actions.shape)
        continuous = self.actions.is_continuous
        if taken.shape != shape or taken.dtype.kind not in ("f" if continuous else "iu"):
            raise ValueError(
                f"actions of shape {taken.shape} and type {taken.dtype}: must be "
                f"{'floats' if continuous else 'whole numbers'} of shape {shape}, one action for "
                f"each of {self.num_envs} environments"
            )
        given = taken.astype(self.actions.dtype)
        if not continuous and (given != taken).any():
            raise ValueError(f"actions {taken.tolist()} outside 0..{self.num_actions - 1}")
        step = self._environments.step(given)
        outcomes = step.outcomes
        return Transition(
            self._seen(step),
            outcomes["reward"].copy(),
            outcomes["terminated"].astype(np.bool_),
            outcomes["truncated"].astype(np.bool_),
        )

    def close(self) -> None:
        """Free the environments."""
        self._environments.close()

    def __enter__(self) -> "StackedEnvironments":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _seen(self, step: Step) -> np.ndarray:
        return self._stacks.push(step.frames, step.firsts)


class LearnedPolicy:
    """The policy in a run's checkpoint. Use from one thread.

    Observations are arrays [n, ...], n at least 1: for pictures [n, height, width, stack]. Each
    method raises ValueError for anything else.
    """

    def __init__(self, config: TrainConfig, policy: Policy, path: Path, steps: int) -> None:
        self.config = config
        """Settings of the run."""
        self.path = path
        """The run's directory."""
        self.steps = steps
        """Environment steps that it was trained for."""
        self._policy = policy
        self._random = np.random.default_rng()

    def act(
        self, observations: ArrayLike, greedy: bool = False, seed: int | None = None
    ) -> np.ndarray:
        """Actions: int32 [n], sampled or the most probable ones, or continuous float32 [n, size].

        A policy learned by dqn is always greedy. Continuous actions never have noise.

        Args:
            observations: arrays [n, ...].
            greedy: take the most probable actions instead of sampling.
            seed: for the samples of this call; None: different samples each time.
        """
        policies, _ = self._policy.judge(self._taken(observations))
        random = self._random if seed is None else np.random.default_rng(seed)
        draws = random.random((len(policies), 2))
        return chosen_actions(GREEDY if greedy else SAMPLE, policies, draws, self._policy.spaces)

    def probabilities(self, observations: ArrayLike) -> np.ndarray:
        """float32 [n, actions], one per action. Raises ValueError if actions are continuous."""
        if self._policy.spaces.actions.is_continuous:
            raise ValueError("actions are continuous and have no probabilities: `act` returns them")
        return self._policy.judge(self._taken(observations))[0]

    def value(self, observations: ArrayLike) -> np.ndarray:
        """The discounted sum of the run's rewards that is expected from here on, float32 [n]."""
        return self._policy.judge(self._taken(observations))[1]

    def make_environments(self, n: int, seed: int = 0) -> StackedEnvironments:
        """n environments like those that the run was trained in. Close them after use."""
        return StackedEnvironments(self.config.environment, n, seed)

    def player(self, environment: gymnasium.Env[Any, Any]) -> "Player":
        """The policy as a player in an environment that you step; see `Player`."""
        return Player(self, environment)

    def _taken(self, observations: ArrayLike) -> np.ndarray:
        """Observations as the network takes them. Raises ValueError."""
        found = np.asarray(observations)
        shape, dtype = tuple(self._policy.model.input_shape[1:]), self._policy.spaces.dtype
        if found.shape[1:] != shape or not len(found):
            raise ValueError(
                f"observations of shape {found.shape}: must be (n, {', '.join(map(str, shape))}), "
                "n at least 1, as in training"
            )
        if not np.can_cast(found.dtype, dtype, "same_kind"):
            raise ValueError(f"observations of type {found.dtype}: must be {dtype}, as in training")
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite
            taken = found.astype(dtype, copy=False)
        if dtype == "float32" and not np.isfinite(taken).all():
            raise ValueError("observations that are not finite: no action would mean anything")
        return taken


class Player:
    """Plays a policy in a Gymnasium environment that you step yourself. Use from one thread.

    It takes single observations as the environment returns them (a `Dict`, say, or only the newest
    picture), and returns actions as the environment takes them.
    """

    def __init__(self, policy: LearnedPolicy, environment: gymnasium.Env[Any, Any]) -> None:
        """Raises ValueError if it is no environment, or its actions are not those of training."""
        if not isinstance(environment, gymnasium.Env):
            raise ValueError(f"environment {environment!r}: must be a gymnasium.Env")
        self._policy, self._spaces = policy, policy._policy.spaces
        self._seen, self._taken = environment.observation_space, environment.action_space
        found = actions_of(policy.config.environment, self._taken)
        if found != self._spaces.actions:
            raise ValueError(f"actions {found}: must be {self._spaces.actions}, as in training")
        self._stacks = Stacks(self._spaces, 1)
        self._is_first = True

    def reset(self) -> None:
        """Call this before the first observation of a game."""
        self._is_first = True

    def act(self, observation: Any, greedy: bool = False) -> Any:
        """The action for one observation, chosen as by `LearnedPolicy.act`.

        Raises ValueError if the observation is of another kind than in training.
        """
        found = self._flat(observation)
        shape, dtype = self._spaces.shape, self._spaces.dtype
        is_table = len(shape) == 1 and found.size == shape[0]  # flattened to a vector
        fits = np.can_cast(found.dtype, dtype, "same_kind") and (is_table or found.shape == shape)
        if fits and self._spaces.is_picture and dtype == "float32":
            fits = bool(found.max() <= 1)  # not bytes up to 255
        if not fits:
            raise ValueError(
                f"observation of shape {found.shape} and type {found.dtype}: must be {shape} "
                f"{dtype}, as in training"
            )
        observations = self._stacks.push(found.reshape(1, *shape), np.array([self._is_first]))
        self._is_first = False
        return own_actions(self._taken, self._policy.act(observations, greedy))[0]

    def _flat(self, observation: Any) -> np.ndarray:
        """The observation as one array. Raises ValueError if it is not of the observation space."""
        if isinstance(self._seen, Box):
            return np.asarray(observation)
        try:
            return np.asarray(flatten(self._seen, observation))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(
                f"observation {observation!r:.80}: must be of {self._seen}, the environment's "
                "observation space"
            ) from error


def load_policy(wanted: LearnedConfig) -> LearnedPolicy:
    """The chosen policy. Raises ValueError or RuntimeError as `chosen.load` does."""
    config, path, found = load(wanted)
    return LearnedPolicy(config, policy_of(config, found), path, found.steps)
