"""Ends ga3c commands that run in processes of their own."""

import subprocess
from typing import Any

END_S = 12.0  # longer than a clean stop takes


def end(process: subprocess.Popen[Any]) -> None:
    """End a command if it still runs: first by SIGTERM, then by SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
