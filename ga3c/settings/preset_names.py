"""One line about each preset, for help texts and for the first lines that a run prints.

This module imports nothing, so that `ga3c --help` is immediate.
"""

PRESET_LINES: dict[str, str] = {
    "default": "chosen by --algorithm and --game",
    "a3c-pictures": "default for a3c on pictures",
    "a3c-vectors": "default for a3c on vectors",
    "ppo-pictures": "default for ppo and for pictures",
    "ppo-vectors": "default for ppo on vectors, and for vectors",
    "ppo-control": "default for ppo on continuous actions",
    "dqn-pictures": "default for dqn on pictures",
    "dqn-vectors": "default for dqn on vectors",
    "dpg-control": "default for dpg and for continuous actions",
    "a3c-control": "default for a3c on continuous actions",
    "apex-small": "Ape-X for pictures on one small machine",
    "paper": "GA3C, Babaeizadeh et al. 2017",
    "dqn": "DQN, Mnih et al. 2015",
    "dueling": "dueling DQN, Wang et al. 2016",
    "in-gpu-replay": "in-GPU replay, Parr 2018",
    "fast-dqn": "fast-dqn, Daley and Amato 2021",
    "apex": "Ape-X DQN, Horgan et al. 2018",
    "apex-dpg": "Ape-X DPG, Horgan et al. 2018",
}
"""The name of each preset and one line about it."""


def preset_lines(indent: str = "") -> str:
    """One line for each preset."""
    width = max(map(len, PRESET_LINES))
    return "\n".join(f"{indent}{name:<{width}}  {line}" for name, line in PRESET_LINES.items())
