"""What learning is told: returns, algorithms, network, optimizer."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from ga3c.settings.checks import check_count, check_share, is_own, not_negative

NetworkName = Literal[
    "auto", "small", "large-4", "large-3", "large-2", "large-1", "nature", "mlp", "parr"
]
SCHEDULE_STEPS = 10_000_000  # of a run that no number of steps ends
LASTING_SHARE = 0.1  # of the first learning rate, which such a run learns on with


@dataclass(frozen=True)
class LearningConfig:
    """What is learned, whatever the algorithm: the discounted sum of clipped rewards."""

    discount: float = 0.99
    """Discount per step (gamma)."""
    reward_clip: float = 1.0
    """Rewards are clipped to [-x, x] for learning; 0 leaves them as they are."""
    max_refused_updates: int = 100
    """An update whose loss or gradient is not finite is left out; after so many in a row the run
    ends, with its last good checkpoint."""

    def __post_init__(self) -> None:
        check_share(self, "discount")
        not_negative(self, "reward_clip")
        check_count(self, "max_refused_updates")


@dataclass(frozen=True)
class A3CConfig:
    """Advantage actor-critic (Mnih et al. 2016; Babaeizadeh et al. 2017)."""

    entropy_weight: float = 0.01
    """Weight of the policy's entropy in the loss (beta) at the start."""
    entropy_weight_end: float = 0.01
    """The same at the end of the schedule."""
    value_weight: float = 0.5
    """Weight of the squared error of the value in the loss."""
    trace_decay: float = 0.95
    """Lambda of the returns: 1 is the paper's n-step return, below it GAE's mixture."""
    correction: Literal["none", "vtrace"] = "vtrace"
    """Correction of policy lag: none (the paper) or V-trace (Espeholt et al. 2018)."""
    normalize_advantages: bool = False
    """Give each batch's advantages mean 0 and deviation 1, as PPO does (Schulman et al. 2017).
    Small batches without a reward then teach their noise as loudly as the others their signal."""
    log_epsilon: float = 1e-6
    """Added to probabilities within logarithms (GA3C, section 5.4)."""

    def __post_init__(self) -> None:
        weights = ("entropy_weight", "entropy_weight_end", "value_weight")
        not_negative(self, *weights, "log_epsilon")
        check_share(self, "trace_decay")


@dataclass(frozen=True)
class DQNConfig:
    """Q-learning from a replay (Mnih et al. 2015) and what has been added to it since."""

    double: bool = True
    """The newest weights choose the action whose value the target's weights tell (van Hasselt et
    al. 2016)."""
    dueling: bool = False
    """The value of a state and the advantages of its actions are told apart (Wang et al. 2016)."""
    dueling_gradient_scale: float = 1.0
    """Factor of the gradient that enters the layers shared by both streams of a dueling network
    (Wang et al. 2016 use 1 / sqrt(2))."""
    huber_delta: float = 1.0
    """Errors beyond this count linearly; 0 squares them all."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """The loss of a batch is the sum (Mnih et al. 2015) or the mean (Parr 2018) of its errors'
    losses. It matters where the optimizer's epsilon is as large as the mean square."""
    epsilon_start: float = 1.0
    """Share of actions drawn evenly until learning begins."""
    epsilon_end: float = 0.01
    """The same after epsilon_steps more, reached linearly."""
    epsilon_steps: int = 100_000
    """Environment steps from the one to the other."""

    def __post_init__(self) -> None:
        check_count(self, "epsilon_steps")
        not_negative(self, "huber_delta")
        check_share(self, "epsilon_start", "epsilon_end", "dueling_gradient_scale")


@dataclass(frozen=True)
class NetworkConfig:
    """What lies between the observation and the heads."""

    network: str = "auto"
    """Torso: small, large-4 to large-1 or nature for pictures, mlp or parr for vectors; auto is
    small or mlp. Or your own, as module:name of a function of observations [n, ...] that returns
    features [n, k]."""
    pixel_scale: Literal["unit", "symmetric"] = "unit"
    """A picture's bytes x become x / 255, in [0, 1], or as in GA3C x / 128 - 1, in [-1, 1).
    Pictures of floats in [0, 1] are taken as x / 255."""
    padding: Literal["same", "valid"] = "valid"
    """Edges of convolutions: same is the published code's, valid costs less."""
    center: bool = True
    """Subtract a picture's mean from it. An even background is then nothing, and not something
    that moves all units together: Adam's first steps would leave few that are ever active."""
    initializer: Literal["orthogonal", "fan-in"] = "orthogonal"
    """First weights: fan-in is the published code's uniform distribution."""
    separate_value: bool = False
    """The value has a torso of its own (a3c): large errors of the value then leave the policy's
    features alone."""
    value_scale: float = 1.0
    """The value is its head's output times this (a3c): values of tens or hundreds, as of rewards
    that are not clipped, are then learned in fewer updates."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of all layers but the heads; weights stay float32. bfloat16 can pay on a GPU, and
    on a processor that has it (AVX512-BF16)."""

    def __post_init__(self) -> None:
        if not self.is_own and self.network not in get_args(NetworkName):
            raise ValueError(
                f"network {self.network!r}: must be one of {', '.join(get_args(NetworkName))}, or "
                "module:name of your own"
            )
        if self.value_scale <= 0:
            raise ValueError(
                f"value_scale {self.value_scale}: must be above 0, or no value is learned"
            )

    @property
    def is_own(self) -> bool:
        """Whether the torso is a function of the user's, and none of ours."""
        return is_own(self.network)


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become steps."""

    optimizer: Literal["rmsprop", "adam"] = "adam"
    """Optimizer: rmsprop is the paper's, not centred, epsilon within the root."""
    learning_rate: float = 7e-4
    """Step size at the start."""
    learning_rate_end: float | None = None
    """Step size at the end of the schedule, reached linearly. None: 0 if the run ends there by
    --steps, else a tenth of the first, as a rate of 0 would learn nothing more."""
    schedule_steps: int | None = None
    """Environment steps over which schedules run; afterwards their end holds. None: as many as
    --steps, or 10 million without it."""
    rms_decay: float = 0.99
    """RMSProp's decay of the mean square."""
    rms_centered: bool = False
    """RMSProp divides by the deviation of gradients, not by their mean square."""
    momentum: float = 0.0
    """RMSProp's momentum."""
    rms_start: float = 0.0
    """RMSProp's mean square before the first update: 1 is TensorFlow 1's, which GA3C used."""
    optimizer_epsilon: float = 1e-5
    """Added to the mean square (rmsprop) or to its root (adam)."""
    clip_norm: float = 40.0
    """Largest global norm of a batch's summed gradient; 0 does not clip."""

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate {self.learning_rate}: must be above 0 to learn")
        not_negative(self, "rms_start", "optimizer_epsilon", "clip_norm")
        if self.learning_rate_end is not None:
            not_negative(self, "learning_rate_end")
        for name in ("rms_decay", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} {getattr(self, name)}: must be in [0, 1), or it never adapts"
                )
        if self.schedule_steps is not None:
            check_count(self, "schedule_steps")

    def scheduled(self, run_steps: int | None) -> "OptimizerConfig":
        """With the schedule of a run of so many environment steps in place of None."""
        horizon = self.schedule_steps or run_steps or SCHEDULE_STEPS
        end = self.learning_rate_end
        if end is None:
            end = 0.0 if horizon == run_steps else LASTING_SHARE * self.learning_rate
        return replace(self, schedule_steps=horizon, learning_rate_end=end)
