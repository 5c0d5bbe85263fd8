"""Cuts first games short, so that environments are not all at the same point of a game.

Environments that start together stay in step where games have a fixed length, as in Boxing or
Freeway: they all show the same minute of the game at once, and learning the next minute overwrites
what was learned from the last one.
"""

import numpy as np


class FirstGames:
    """When to cut short the first game of each of n environments; later games are played in full.

    The lengths are spread evenly: 0 .. `most_steps` is split into n equal parts, and each
    environment draws its length from a different part, assigned at random.
    """

    def __init__(self, num_envs: int, most_steps: int) -> None:
        """Args: most_steps: the longest first game, in steps; 0: no game is cut."""
        self._most_steps = most_steps
        self._lengths_steps = np.zeros(num_envs, np.int64)  # of first games still running, else 0
        self._random = np.random.default_rng()

    def begin(self, seed: int | None) -> None:
        """Start a game in every environment. A `seed` determines the lengths.

        Before the first seed they are random.
        """
        if seed is not None:
            self._random = np.random.default_rng(seed)
        count = len(self._lengths_steps)
        parts = self._random.permutation(count) + self._random.random(count)
        self._lengths_steps = np.ceil(parts / count * self._most_steps).astype(np.int64)

    def due(self, lengths_steps: np.ndarray, finished: np.ndarray) -> np.ndarray:
        """Which environments [n] to cut now, given the lengths [n] of their games, in steps.

        A game that has `finished` on its own is not cut, and neither is the next one.
        """
        due = (self._lengths_steps > 0) & (lengths_steps >= self._lengths_steps) & ~finished
        self._lengths_steps[due | finished] = 0
        return due
