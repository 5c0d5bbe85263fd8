"""Schedules of values that change during a run."""


def linear(start: float, end: float, progress: float) -> float:
    """From `start` at progress 0 to `end` at 1 and beyond."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)
