"""What this process holds, so that a test can tell what it has left behind.

Sets, not numbers: what an earlier test held may go at any moment, and would be counted against
the one that looks.
"""

import os
from pathlib import Path

import psutil


def descriptors() -> set[tuple[str, str]]:
    """Number and target of each open file descriptor."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add((link.name, os.readlink(link)))
        except FileNotFoundError:  # the one that lists them
            continue
    return found


def threads() -> set[int]:
    """The ids of all threads, those that Python does not know included."""
    return {thread.id for thread in psutil.Process().threads()}
