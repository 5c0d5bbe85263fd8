"""The studies: one file for each question about speed or learning. `ga3c benchmark NAME` runs them.

They are not installed with ga3c: a checkout has them. What a user measures to understand a run is
in `ga3c/measuring/`.
"""

NAMES = (
    "sweep",
    "ablation",
    "a3c",
    "tuning",
    "lanes",
    "watching",
    "replay",
    "fast-dqn",
    "gpu-check",
)
