"""Cuts the first games short, so that environments are not all at the same point of a game.

Environments that begin together stay together wherever games have a fixed length, as in Boxing or
Freeway: all of them then show the same minute of the game at a time, and what is learned of one
minute is overwritten while the next one is learned.
"""

import numpy as np


class FirstGames:
    """When the first game of each of n environments is cut short; later games are whole.

    The lengths are spread evenly: environment i's is drawn from the i-th of n equal parts of
    0 .. `most_steps`, in a random order of the parts.
    """

    def __init__(self, num_envs: int, most_steps: int) -> None:
        """Args: most_steps: the longest first game, in steps; 0: no game is cut."""
        self._most_steps = most_steps
        self._lengths_steps = np.zeros(num_envs, np.int64)  # of first games that go on, else 0
        self._random = np.random.default_rng()

    def begin(self, seed: int | None) -> None:
        """All environments begin a game. With a `seed` the lengths are those of the seed.

        Before any seed they are random.
        """
        if seed is not None:
            self._random = np.random.default_rng(seed)
        count = len(self._lengths_steps)
        parts = self._random.permutation(count) + self._random.random(count)
        self._lengths_steps = np.ceil(parts / count * self._most_steps).astype(np.int64)

    def due(self, lengths_steps: np.ndarray, finished: np.ndarray) -> np.ndarray:
        """Which environments [n] are to be cut now, for games of these lengths, in steps [n].

        A game that has `finished` by itself is not cut, and neither is the next one.
        """
        due = (self._lengths_steps > 0) & (lengths_steps >= self._lengths_steps) & ~finished
        self._lengths_steps[due | finished] = 0
        return due
