"""The names of presets, algorithms and networks that options accept, and what each one is.

This module imports nothing from ga3c, so that `ga3c --help` starts at once.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

LearnsFrom = Literal["segments", "replay"]
Conv = tuple[int, int, int]  # filters, size, stride


class Traits(NamedTuple):
    """What is known about one of our algorithms before it is built."""

    line: str  # one line about it
    learns_from: LearnsFrom  # segments, each once, in order; or transitions drawn from a replay
    sections: frozenset[str] = frozenset()  # of algorithm-specific settings: those it reads
    unread: frozenset[str] = frozenset()  # other settings that it does not read


TRAITS = {
    "a3c": Traits(
        "advantage actor-critic from queued segments (Mnih et al. 2016; GA3C)",
        "segments",
        frozenset({"a3c"}),
    ),
    "ppo": Traits(
        "a3c with a clipped ratio and minibatches (Schulman et al. 2017)",
        "segments",
        frozenset({"a3c", "ppo"}),
    ),
    "dqn": Traits(
        "Q-learning from a replay: double, dueling, n-step, prioritised (Mnih et al. 2015)",
        "replay",
        frozenset({"dqn"}),
        frozenset({"separate_value", "value_scale", "follow_rewards"}),
    ),
    "dpg": Traits(
        "deterministic policy gradients from a replay, continuous actions (Silver et al. 2014)",
        "replay",
        frozenset({"dpg"}),
        frozenset({"separate_value"}),
    ),
}
"""Our algorithms, by name."""


def learns_from(algorithm: str, given: LearnsFrom | None) -> LearnsFrom | None:
    """What an algorithm learns from. Args: given: the answer for a user's own algorithm."""
    ours = TRAITS.get(algorithm)
    return ours.learns_from if ours else given


class Torso(NamedTuple):
    """The layers of one of our networks: convolutions, if it is for pictures, then dense layers."""

    convs: tuple[Conv, ...]
    units: tuple[int, ...]
    source: str
    activation: str = "relu"

    @property
    def kind(self) -> str:
        """What observations it is for."""
        return "pictures" if self.convs else "vectors"

    @property
    def line(self) -> str:
        """Its layers in words."""
        convs = (f"conv {filters} {size}x{size}/{stride}" for filters, size, stride in self.convs)
        layers = ", ".join([*convs, *(f"dense {units}" for units in self.units)])
        return f"{self.kind}: {layers}, {self.activation} ({self.source})"


TORSOS = {
    "small": Torso(((16, 8, 4), (32, 4, 2)), (256,), "GA3C and A3C, section 5"),
    **{
        f"large-{stride}": Torso(((32, 8, stride), (32, 4, 2), (64, 4, 2)), (256,), "GA3C, Table 2")
        for stride in (4, 3, 2, 1)
    },
    "nature": Torso(((32, 8, 4), (64, 4, 2), (64, 3, 1)), (512,), "Mnih et al. 2015"),
    "minatar": Torso(((16, 3, 1),), (128,), "Young and Tian 2019"),
    "mlp": Torso((), (64, 64), "Schulman et al. 2017", "tanh"),
    "parr": Torso((), (128, 512), "Parr 2018"),
}
"""Our networks between an observation and an algorithm's heads, by name."""
AUTO = "small for pictures, minatar for those below 20 pixels, mlp for vectors"
NETWORK_LINES = {"auto": AUTO, **{name: torso.line for name, torso in TORSOS.items()}}

PRESET_LINES: dict[str, str] = {
    "default": "chosen by --algorithm and --game",
    "a3c-pictures": "default for a3c on pictures",
    "a3c-vectors": "default for a3c on vectors",
    "ppo-pictures": "default for pictures, with ppo",
    "ppo-vectors": "default for vectors, with ppo",
    "ppo-control": "default for ppo on continuous actions",
    "dqn-pictures": "default for dqn on pictures",
    "dqn-vectors": "default for dqn on vectors",
    "dpg-control": "default for continuous actions, with dpg",
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

if TYPE_CHECKING:
    NetworkName = str
    PresetName = str
else:
    NetworkName = Literal[tuple(NETWORK_LINES)]
    PresetName = Literal[tuple(PRESET_LINES)]


def preset_lines(indent: str = "") -> str:
    """One line for each preset."""
    width = max(map(len, PRESET_LINES))
    return "\n".join(f"{indent}{name:<{width}}  {line}" for name, line in PRESET_LINES.items())
