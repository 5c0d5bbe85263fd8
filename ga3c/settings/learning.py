"""Settings of learning: returns, algorithms, network, optimizer."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ga3c.settings.checks import above_zero, check_count, check_share, is_own, not_negative
from ga3c.settings.choices import NETWORK_LINES

SCHEDULE_STEPS = 10_000_000  # length of the schedules of a run without --steps
# If a run can outlast its schedule, the learning rate ends at this share of its initial value.
LASTING_SHARE = 0.1


def linear(start: float, end: float, progress: float) -> float:
    """A scheduled value: `start` at progress 0, `end` at 1 and beyond, linear between."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


@dataclass(frozen=True)
class LearningConfig:
    """The objective, the discounted sum of clipped rewards, and the initial weights."""

    discount: float = 0.99
    """Discount factor per step (gamma)."""
    reward_clip: float = 1.0
    """Rewards are clipped to [-x, x] for learning; 0: no clipping."""
    max_refused_updates: int = 100
    """An update whose loss or gradient is not finite is skipped. After this many skipped updates in
    a row the run ends and keeps its last good checkpoint."""
    initial_weights: Path | None = None
    """Start the new run from the network weights of this earlier one: its newest checkpoint, or
    RUN/best for its best weights (--evaluate-every). Give its directory, or its name or number in
    --runs-dir. Steps, optimizer, schedules and exploration start afresh. None: random weights."""

    def __post_init__(self) -> None:
        check_share(self, "discount")
        not_negative(self, "reward_clip")
        check_count(self, "max_refused_updates")


@dataclass(frozen=True)
class A3CConfig:
    """Advantage actor-critic (Mnih et al. 2016; Babaeizadeh et al. 2017)."""

    entropy_weight: float = 0.01
    """Weight of the entropy bonus in the loss (beta) at the start of the schedule."""
    entropy_weight_end: float | None = None
    """Weight of the entropy bonus at the end of the schedule. None: entropy_weight throughout."""
    value_weight: float = 0.5
    """Weight of the squared value error in the loss."""
    trace_decay: float = 0.95
    """Lambda of the returns: 1 gives the paper's n-step return, less than 1 GAE's mixture. V-trace
    cuts traces shorter the more the policies differ."""
    correction: Literal["none", "vtrace"] = "vtrace"
    """Correction of policy lag: none (the paper) or V-trace (Espeholt et al. 2018)."""
    normalize_advantages: bool = False
    """Normalise each update's advantages to mean 0 and variance 1, as PPO does (Schulman et al.
    2017). Noise in a small batch without rewards then counts as much as signal in other batches."""
    log_epsilon: float = 1e-6
    """Added to probabilities inside logarithms (GA3C, section 5.4)."""

    def __post_init__(self) -> None:
        weights = ("entropy_weight", "entropy_weight_end", "value_weight")
        not_negative(self, *weights, "log_epsilon")
        check_share(self, "trace_decay")


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimization (Schulman et al. 2017), in addition to the settings of a3c."""

    clip_ratio: float = 0.2
    """Clip range of the probability ratio (epsilon): an action whose probability has moved by more
    than this share in the direction of its advantage gets no further gradient."""

    def __post_init__(self) -> None:
        check_share(self, "clip_ratio")


@dataclass(frozen=True)
class DQNConfig:
    """Q-learning from a replay (Mnih et al. 2015) and later extensions."""

    double: bool = True
    """Choose the next action with the newest weights, and take its value from the target network
    (van Hasselt et al. 2016)."""
    dueling: bool = False
    """Compute the state value and the action advantages in two streams (Wang et al. 2016)."""
    dueling_gradient_scale: float = 1.0
    """Factor on the gradient into the layers that both streams of a dueling network share (Wang et
    al. 2016 use 1 / sqrt(2))."""
    huber_delta: float = 1.0
    """Huber loss: errors beyond this count linearly; 0: all errors are squared."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """Sum (Mnih et al. 2015) or mean (Parr 2018) of the losses in a batch. The choice matters if
    the optimizer's epsilon is as large as the mean squared gradient."""
    exploration: Literal["schedule", "ladder"] = "schedule"
    """schedule: all environments share one epsilon, the share of random actions, which falls from
    epsilon_start to epsilon_end. ladder: each environment has a constant epsilon of its own, from
    ladder_base down to ladder_base^(1 + ladder_exponent) (Ape-X, Horgan et al. 2018)."""
    ladder_base: float = 0.4
    """Largest epsilon on the ladder."""
    ladder_exponent: float = 7.0
    """Sets the smallest epsilon on the ladder, ladder_base^(1 + ladder_exponent)."""
    ladder_rungs: int | None = None
    """Number of different epsilons on the ladder; None: one per environment."""
    epsilon_start: float = 1.0
    """Epsilon, the share of uniformly random actions, until learning begins."""
    epsilon_end: float = 0.01
    """Epsilon once epsilon_steps have been played since learning began."""
    epsilon_steps: int = 100_000
    """Environment steps over which epsilon falls linearly from epsilon_start to epsilon_end."""

    def __post_init__(self) -> None:
        check_count(self, "epsilon_steps", "ladder_rungs")
        not_negative(self, "huber_delta", "ladder_exponent")
        shares = ("epsilon_start", "epsilon_end", "ladder_base", "dueling_gradient_scale")
        check_share(self, *shares)


@dataclass(frozen=True)
class DPGConfig:
    """Deterministic policy gradients (Silver et al. 2014), for continuous actions."""

    noise: float = 0.3
    """Standard deviation of the Gaussian noise on actions, whose components are in [-1, 1]."""
    action_gradient_clip: float = 1.0
    """Clip the critic's gradient with respect to the action to [-x, x]; 0: no clipping."""
    actor_units: tuple[int, int] = (300, 200)
    """Units of the actor's two dense layers."""
    critic_units: tuple[int, int] = (400, 300)
    """Units of the critic's two dense layers."""

    def __post_init__(self) -> None:
        not_negative(self, "noise", "action_gradient_clip")
        if min(*self.actor_units, *self.critic_units) < 1:
            raise ValueError("actor_units, critic_units: must be above 0, or a layer is empty")


@dataclass(frozen=True)
class NetworkConfig:
    """The network between the observation and the heads."""

    network: str = "auto"
    """Torso: small, large-4 to large-1, nature or minatar for pictures, mlp or parr for vectors;
    auto picks small, minatar (below 20 pixels) or mlp. Or your own, as module:name of a function
    that takes observations [n, ...] and returns features [n, k], or as module:name(key=value)."""
    units: tuple[int, ...] | None = None
    """Units of the torso's dense layers: for vectors one number per layer, such as 256 256, for
    pictures a single one. None: the torso's defaults."""
    pixel_scale: Literal["unit", "symmetric"] = "unit"
    """unit scales a picture's bytes x to x / 255, in [0, 1]; symmetric to x / 128 - 1, in [-1, 1),
    as GA3C does. Pictures of floats in [0, 1] are treated as x / 255."""
    padding: Literal["same", "valid"] = "valid"
    """Padding of the convolutions: same is what the published code uses, valid is cheaper."""
    center: bool = True
    """Subtract each picture's mean, so that a uniform background becomes 0. Otherwise the
    background shifts all units together, and few units stay active after Adam's first steps."""
    layer_norm: bool = True
    """Apply layer normalisation (Ba et al. 2016) to the last dense layer of a torso or of each
    stream of a dueling network, and to the first of dpg's actor and critic, before its activation.
    Otherwise many of its units soon die."""
    initializer: Literal["orthogonal", "fan-in"] = "orthogonal"
    """Distribution of the initial weights: fan-in is the uniform one of the published code."""
    separate_value: bool = False
    """Give the value its own torso (a3c, ppo), so that large value errors do not disturb the
    policy's features."""
    normalize_observations: bool = False
    """Subtract from vector observations their running mean and divide by their running standard
    deviation, over everything trained on so far. For sensors on very different scales."""
    follow_rewards: bool = False
    """Multiply the value head's output by the root mean square of all rewards so far, on top of
    value_scale, and measure losses in this unit (a3c, ppo, dpg). Learning then does not depend on
    the scale of unclipped rewards. Where returns are many times a reward, raise value_scale."""
    value_scale: float = 1.0
    """Multiply the value head's output by this factor (not for dqn). Values in the tens or
    hundreds, as with unclipped rewards, are then learned in fewer updates."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Compute precision of all layers but the heads; weights and biases stay float32. bfloat16 can
    be faster on a GPU, and on a CPU that supports it (AVX512-BF16)."""

    def __post_init__(self) -> None:
        if not self.is_own and self.network not in NETWORK_LINES:
            raise ValueError(
                f"network {self.network!r}: must be one of {', '.join(NETWORK_LINES)}, or "
                "module:name of your own"
            )
        if self.units is not None and min(self.units, default=0) < 1:
            raise ValueError(f"units {self.units}: must be one or more numbers above 0")
        if self.value_scale <= 0:
            raise ValueError(f"value_scale {self.value_scale}: must be above 0 to learn values")

    @property
    def is_own(self) -> bool:
        """Whether the torso is a function that the user wrote."""
        return is_own(self.network)


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients change the weights."""

    optimizer: Literal["rmsprop", "adam"] = "adam"
    """rmsprop is the paper's variant: not centred, and with epsilon inside the square root."""
    learning_rate: float = 7e-4
    """Learning rate at the start of the schedule."""
    learning_rate_end: float | Literal["constant"] | None = None
    """Learning rate at the end of the schedule, which is linear; constant: learning_rate. None: 0
    if --steps ends the run there, otherwise a tenth of learning_rate, to learn on."""
    schedule_steps: int | None = None
    """Environment steps over which schedules run; their end values hold afterwards. None: as many
    as --steps, or 10 million without --steps."""
    rms_decay: float = 0.99
    """RMSProp's decay rate for the mean squared gradient."""
    rms_centered: bool = False
    """RMSProp divides by the gradients' standard deviation, not by their root mean square."""
    momentum: float = 0.0
    """RMSProp's momentum."""
    rms_start: float = 0.0
    """RMSProp's initial mean square; 1 in TensorFlow 1, which GA3C used."""
    optimizer_epsilon: float = 1e-5
    """Added to the mean square (rmsprop) or to its square root (adam); without it, a weight that
    never had a gradient would become NaN."""
    clip_norm: float = 40.0
    """Maximum norm of an update's gradient (a3c: of summed losses; ppo: of their mean); 0: off."""

    def __post_init__(self) -> None:
        above_zero(self, "learning_rate", "optimizer_epsilon")
        ends = () if self.learning_rate_end == "constant" else ("learning_rate_end",)
        not_negative(self, "rms_start", "clip_norm", *ends)
        for name in ("rms_decay", "momentum"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} {value}: must be in [0, 1), or it would never adapt")
        check_count(self, "schedule_steps")

    def scheduled(self, run_steps: int | None) -> "OptimizerConfig":
        """This configuration with the numbers of the schedule of a run of `run_steps`."""
        horizon = self.schedule_steps or run_steps or SCHEDULE_STEPS
        end = self.learning_rate_end
        if end == "constant":
            end = self.learning_rate
        elif end is None:
            end = 0.0 if horizon == run_steps else LASTING_SHARE * self.learning_rate
        return replace(self, schedule_steps=horizon, learning_rate_end=end)

    def rate_at(self, progress: float) -> float:
        """The learning rate at progress 0 to 1 in the schedule, which is `scheduled`."""
        assert isinstance(self.learning_rate_end, (int, float))
        return linear(self.learning_rate, self.learning_rate_end, progress)
