"""An environment, for tests, that starts a process of its own, as simulators do."""

import subprocess
import time
from pathlib import Path

import gymnasium

from tests.tiny import Corridor


class Simulator(Corridor):
    """Names a file in `folder` after its process's id, and adds `ID.closed` when it is closed."""

    def __init__(self, folder: str, hangs: bool = False) -> None:
        super().__init__()
        self._process = subprocess.Popen(["sleep", "600"])
        self._file = Path(folder) / str(self._process.pid)
        self._file.touch()
        self._hangs = hangs

    def close(self) -> None:
        if self._hangs:
            time.sleep(600)
        self._process.kill()
        self._process.wait()
        self._file.with_suffix(".closed").touch()


gymnasium.register("Simulator-v0", Simulator, max_episode_steps=20)
