"""An environment, for tests, that starts a process of its own, as simulators do."""

import subprocess
import time
from pathlib import Path

import gymnasium

from agents import worker
from tests.tiny import Corridor


class Simulator(Corridor):
    """Names a file in `folder` after its process's id, and adds `ID.closed` when it is closed."""

    def __init__(self, folder: str, hangs: bool = False) -> None:
        super().__init__()
        self._process = subprocess.Popen(["sleep", "600"])
        self._file = Path(folder) / str(self._process.pid)
        self._file.touch()
        self._hangs = hangs
        if not hangs:
            worker.CLOSING_S = 30.0  # this agent must have closed all of its environments

    def close(self) -> None:
        if self._hangs:
            time.sleep(600)
        self._process.kill()
        self._process.wait()
        self._file.with_suffix(".closed").touch()


gymnasium.register("Simulator-v0", Simulator, max_episode_steps=20)
