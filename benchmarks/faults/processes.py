"""Processes that carry a mark in their environment, wherever they hang in the process tree."""

import os
import uuid
from typing import NamedTuple

import psutil

MARK = "GA3C_MARK"  # in the environment of a command and of all that it starts


def new_mark() -> str:
    """A mark that no other process has."""
    return uuid.uuid4().hex


def marked(mark: str) -> list[psutil.Process]:
    """All living processes with this mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:  # it has just ended, or is another user's
            continue
    return found


class Belongings(NamedTuple):
    """What a process holds at a moment."""

    memory_mb: float  # resident
    descriptors: int
    threads: int
    children: int


def belongings(pid: int) -> Belongings | None:
    """What the process holds; None if it has ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return Belongings(
                process.memory_info().rss / 2**20,
                len(os.listdir(f"/proc/{pid}/fd")),
                process.num_threads(),
                len(process.children()),
            )
    except (psutil.Error, OSError):
        return None
