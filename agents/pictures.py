"""A second copy of a game, in full colour, played with the same seed and the same actions.

It is rendered in a separate process: one that loads both a software renderer (Mesa's LLVM) and
TensorFlow ends with a segmentation fault.
"""

import contextlib
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from ale_py import ALEInterface, roms
from gymnasium.spaces import Space

from agents import control
from agents.config import EnvironmentConfig
from agents.games import Game, check, fault
from agents.spaces import actions_of, own_actions
from agents.vectors import make_vector, seeds_of

EMULATOR_FRAMES_PER_S = 60
ANSWER_S = 120.0  # timeout for a picture
END_S = 5.0
# Gymnasium renders many games with pygame, which needs no screen but complains if there is none.
WITHOUT_SCREEN = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
WITHOUT_SCREEN |= {"MUJOCO_GL": "egl"}  # for MuJoCo: renders on a GPU, or in software
REMEDY = "; its constructor must take render_mode, and metadata name rgb_array (docs/extending.md)"


class NoPictures(ValueError):
    """An environment that cannot be rendered; the message says why."""


class Pictures:
    """One environment that returns its pictures. Use it from one thread.

    Each call raises NoPictures if the environment cannot be rendered.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._name = config.game
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_draw, args=(config, theirs), daemon=True)
        self._process.start()
        theirs.close()
        try:
            found = self._answer()
        except NoPictures:
            self.close()
            raise
        self.actions: list[str] = found[0]
        """The name of each action."""
        self.per_second: float = found[1]
        """Pictures per second of play."""

    def reset(self, seed: int) -> np.ndarray:
        """Start the game of `Environments(config, 1).reset(seed)`: a picture, [h, w, 3] uint8."""
        return self._answer(("reset", seed))

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Take the action, [1, *shape]. Returns the picture after it, [h, w, 3] uint8."""
        return self._answer(("step", actions))

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(END_S)
        self._process.kill()
        self._process.join(END_S)

    def _answer(self, asked: tuple[str, Any] | None = None) -> Any:
        try:
            if asked:
                self._pipe.send(asked)
            if not self._pipe.poll(ANSWER_S):
                raise NoPictures(f"{self._name} cannot be rendered: no answer in {ANSWER_S:g} s")
            answer = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            self._process.join(END_S)
            code = self._process.exitcode
            raise NoPictures(
                f"{self._name} cannot be rendered: its rendering process exited with code {code}"
            ) from error
        if isinstance(answer, NoPictures):
            raise answer
        return answer


def _draw(config: EnvironmentConfig, pipe: Connection) -> None:
    """Answer the parent's calls until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            drawn = _Drawn(config)
            pipe.send((drawn.actions, drawn.per_second))
            while True:
                method, given = pipe.recv()
                pipe.send(getattr(drawn, method)(given))
        except NoPictures as error:
            pipe.send(error)


class _Drawn:
    """The environment in the rendering process. Its methods are those of `Pictures`."""

    def __init__(self, config: EnvironmentConfig) -> None:
        for name, value in WITHOUT_SCREEN.items():
            if os.environ.get(name) in (None, control.WITHOUT_PICTURES[1]):  # not set by the user
                os.environ[name] = value
        self._game = check(config.game)
        remedy = "" if self._game.is_atari else REMEDY
        with _refusing(config.game, remedy), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing rgb_array: the error says so too
            self._vector: Any = make_vector(config, self._game, 1, 1, rendered=True)
        self.per_second = EMULATOR_FRAMES_PER_S / config.action_repeat
        if not self._game.is_atari:
            self.per_second = float(self._vector.metadata.get("render_fps", 30))
        self._action_space = self._vector.single_action_space
        self.actions = _action_names(self._game, config, self._action_space)

    def reset(self, seed: int) -> np.ndarray:
        frames, _ = self._vector.reset(seed=seeds_of(self._game, seed, 1))
        return self._seen(frames)

    def step(self, actions: np.ndarray) -> np.ndarray:
        return self._seen(self._vector.step(own_actions(self._action_space, actions))[0])

    def _seen(self, frames: np.ndarray) -> np.ndarray:
        if self._game.is_atari:
            return np.ascontiguousarray(frames[0, 0])
        with _refusing(self._game.name, REMEDY):
            return np.asarray(self._vector.render()[0], np.uint8)


@contextlib.contextmanager
def _refusing(name: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:  # a package is missing, or there is no render_mode
        raise NoPictures(f"{name} cannot be rendered: {fault(error)}{remedy}") from error


def _action_names(game: Game, config: EnvironmentConfig, space: Space) -> list[str]:
    if not game.is_atari:
        actions = actions_of(config, space)
        return [f"action {number}" for number in range(actions.count or actions.size)]
    emulator = ALEInterface()
    emulator.loadROM(str(roms.get_rom_path(game.name)))
    full = config.full_action_space
    named = emulator.getLegalActionSet() if full else emulator.getMinimalActionSet()
    return [action.name.lower() for action in named]
