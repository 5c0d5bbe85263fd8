"""One file for each question about speed or learning; `ga3c benchmark NAME` runs those here."""

NAMES = (
    "limits",
    "throughput",
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
