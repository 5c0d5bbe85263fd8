"""The studies: one file for each question about speed or learning. `ga3c benchmark NAME` runs one.

They are not installed with ga3c, so they need a checkout. The measurements that help a user
understand a run are in `ga3c/measuring/`.
"""

NAMES = (
    "sweep",
    "ablation",
    "a3c",
    "tuning",
    "lanes",
    "watching",
    "learning",
    "peers",
    "constant",
    "replay",
    "fast-dqn",
    "apex",
    "machines",
    "faults",
    "gpu-check",
)
