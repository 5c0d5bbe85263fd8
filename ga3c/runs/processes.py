"""Ends the commands of ours that another one of ours has started."""

import subprocess
from typing import Any

END_S = 12.0  # longer than a clean stop takes


def end(process: subprocess.Popen[Any]) -> None:
    """End a command of ours, if it still runs: in order, or after a while by force."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
