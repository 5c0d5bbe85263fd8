"""What this process holds, so that a test can tell what it has left behind.

Functions return sets, not counts: something that an earlier test left may go away at any moment,
which would falsify a difference of counts.
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
        except FileNotFoundError:  # the descriptor that lists this directory
            continue
    return found


def threads() -> set[int]:
    """The ids of all threads, including those that Python does not know."""
    return {thread.id for thread in psutil.Process().threads()}
