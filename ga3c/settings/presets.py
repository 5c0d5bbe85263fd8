"""Presets: our settings for each algorithm and kind of observation, and the published ones."""

from dataclasses import replace

from ga3c.settings.choices import PRESET_LINES
from ga3c.settings.learning import (
    A3CConfig,
    DQNConfig,
    LearningConfig,
    NetworkConfig,
    OptimizerConfig,
)
from ga3c.settings.machine import CORES, sees_gpu
from ga3c.settings.published import PUBLISHED
from ga3c.settings.replay import PacingConfig, ReplayConfig
from ga3c.settings.run import EvaluationConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig

DEFAULT = "default"
# For dqn: its updates limit the rate with far fewer agents already, and the replay is divided among
# the agents.
MOST_AGENTS_DQN = 16
# For a3c on vectors: CartPole-v1 took 160,000 steps with 32 environments, over 500,000 with 128.
MOST_AGENTS_VECTORS = 4

# For ppo on pictures.
LANES, MOST_LANES = 64, 512  # per two cores, and in total
MOST_IN_PROGRESS = 16_384  # the most lanes * t_max for batches of 2,048 steps
OF_LANES = ("agents", "envs_per_agent", "t_max")  # the arguments of `for_lanes`, in this order
SIZES = ("training_batch_min", "training_batch_max", "training_queue", "minibatch")

WHOLE_S = 30.0
"""How long ppo waits for a full batch: learning must not depend on the machine's speed."""
_NO_SCHEDULER = SchedulerConfig(scheduler="off")
_CONTROL = EvaluationConfig(evaluate_episodes=10, evaluate_protocol="control")


def ppo_pictures(cores: int, gpu: bool = False) -> TrainConfig:
    """Our ppo settings for pictures on a machine with this many cores, and perhaps a GPU.

    Without a GPU, half of the cores play and the other half learn; with one, all cores play.

    A batch is one segment from each of 64 environments. It gets three passes of eight small updates
    while the next one is played. With only two pending segments, environments whose segments do not
    end together would have to wait for each batch to be trained on.

    Advantages are normalised per update. Otherwise a game with rare or small rewards, such as
    Boxing, is hardly learned, because the entropy bonus outweighs its advantages.
    """
    pairs = max(1, cores // 2)
    agents = cores if gpu else pairs
    envs_per_agent = max(2, min(LANES * pairs, MOST_LANES) // agents // 2 * 2)  # in two groups
    return TrainConfig(
        algorithm="ppo",
        preset="ppo-pictures",
        service=ServiceConfig(
            agents=agents,
            envs_per_agent=envs_per_agent,
            stagger_steps=2_000,
            t_max=32,
            training_batch_min=2048,
            training_batch_max=2048,
            training_queue=4096,
            training_wait_s=WHOLE_S,
            minibatch=256,
            pending_segments=3,
            passes=3,
            intra_op_threads=max(2, pairs),
        ),
        a3c=A3CConfig(normalize_advantages=True),
        optimizer=OptimizerConfig(learning_rate=5e-4, clip_norm=0.5),
        scheduler=_NO_SCHEDULER,
    )


def for_lanes(
    settings: TrainConfig, agents: int | None, envs_per_agent: int | None, t_max: int | None
) -> TrainConfig:
    """Our ppo settings for this many environments; settings of other algorithms are unchanged.

    Up to 512 environments on pictures, a batch has the same number of steps, so that the policy
    improves as often. The more environments, the older a segment is when it is trained on, which
    V-trace corrects up to a point. Beyond it, batches and updates grow, so that segments are no
    more than eight batches old, and the learning rate grows with the square root of their size
    (Krizhevsky 2014). docs/learning.md says what was tried.

    Args: agents, envs_per_agent, t_max: None keeps the value in `settings`.
    """
    service, optimizer = settings.service, settings.optimizer
    if settings.algorithm != "ppo":
        return settings
    lanes = (agents or service.agents) * (envs_per_agent or service.envs_per_agent)
    larger = max(lanes * (t_max or service.t_max) / MOST_IN_PROGRESS, 1.0)
    sizes = {name: round(getattr(service, name) * larger) for name in SIZES}
    optimizer = replace(optimizer, learning_rate=optimizer.learning_rate * larger**0.5)
    return replace(settings, service=replace(service, **sizes), optimizer=optimizer)


# On vectors, rewards are not clipped, so values are large. The value has its own torso, because its
# gradient would otherwise swamp the policy's, and it is scaled, so that it is learned before the
# policy needs it. Each batch's advantages are normalised. Gradients are not clipped by norm, as
# Adam is insensitive to their scale.
_VECTORS = NetworkConfig(layer_norm=False, separate_value=True, value_scale=10.0)

_OURS = (
    TrainConfig(preset="a3c-pictures"),
    TrainConfig(
        preset="a3c-vectors",
        service=ServiceConfig(
            agents=min(CORES, MOST_AGENTS_VECTORS), envs_per_agent=16, prediction_batch_min=16
        ),
        learning=LearningConfig(reward_clip=0.0),
        a3c=A3CConfig(normalize_advantages=True),
        network=_VECTORS,
        optimizer=OptimizerConfig(learning_rate=1e-3, clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    ppo_pictures(CORES, sees_gpu()),
    # A long segment from every environment, with four passes of small updates. With segments of 20
    # steps, LunarLander-v3 was not learned: its policy stayed in the air.
    TrainConfig(
        algorithm="ppo",
        preset="ppo-vectors",
        service=ServiceConfig(
            agents=1,
            envs_per_agent=16,
            prediction_batch_min=16,
            t_max=128,
            training_batch_min=16 * 128,
            training_batch_max=16 * 128,
            training_queue=2 * 16 * 128,
            training_wait_s=WHOLE_S,
            minibatch=128,
            passes=4,
        ),
        learning=LearningConfig(discount=0.999, reward_clip=0.0),
        a3c=A3CConfig(normalize_advantages=True, trace_decay=0.98),
        network=replace(_VECTORS, normalize_observations=True, follow_rewards=True),
        optimizer=OptimizerConfig(learning_rate=1e-3, learning_rate_end="constant", clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    TrainConfig(
        algorithm="dqn",
        preset="dqn-pictures",
        service=ServiceConfig(
            agents=min(CORES, MOST_AGENTS_DQN), envs_per_agent=16, prediction_batch_min=16
        ),
        network=NetworkConfig(layer_norm=False),
        optimizer=OptimizerConfig(learning_rate=3e-4, learning_rate_end="constant", clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    # Ape-X for a small machine: a ladder of epsilons, and free pacing. One group of 16 lanes waits
    # for its actions while the cores learn, so that each step is replayed two or three times. With
    # 32 lanes in two groups and batches of 32, it was only 0.85 times.
    TrainConfig(
        algorithm="dqn",
        preset="apex-small",
        service=ServiceConfig(
            agents=1, max_agents=1, envs_per_agent=16, groups=1, prediction_batch_min=16
        ),
        dqn=DQNConfig(dueling=True, exploration="ladder"),
        replay=ReplayConfig(
            batch_size=64,
            replay_draws="prioritised",
            first_priority="acting",
            importance_exponent_end=0.4,
        ),
        pacing=PacingConfig(pacing="free"),
        optimizer=OptimizerConfig(learning_rate=3e-4, learning_rate_end="constant", clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    # For MountainCar: velocity is a hundredth of position, so observations are normalised, and
    # values must stay optimistic until the goal is found, so a step is replayed 16 times, not 64.
    TrainConfig(
        algorithm="dqn",
        preset="dqn-vectors",
        service=ServiceConfig(agents=1, envs_per_agent=8, prediction_batch_min=4),
        learning=LearningConfig(reward_clip=0.0),
        dqn=DQNConfig(epsilon_steps=10_000),
        replay=ReplayConfig(
            n_step=5,
            batch_size=256,
            target_period=250,
            replay_steps=100_000,
            replay_min_steps=1_000,
            update_size=64,
        ),
        pacing=PacingConfig(steps_per_update=16.0),
        network=NetworkConfig(layer_norm=False, normalize_observations=True),
        optimizer=OptimizerConfig(learning_rate=1e-3, learning_rate_end="constant", clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    # Continuous actions. One group of lanes waits for its actions while the cores learn. Each step
    # is replayed ten times on any machine, so that steps say how far a run has learned.
    TrainConfig(
        algorithm="dpg",
        preset="dpg-control",
        service=ServiceConfig(
            agents=1, max_agents=1, envs_per_agent=32, groups=1, prediction_batch_min=32
        ),
        learning=LearningConfig(reward_clip=0.0),
        replay=ReplayConfig(
            n_step=3,
            batch_size=128,
            target_period=100,
            replay_steps=1_000_000,
            replay_min_steps=5_000,
        ),
        pacing=PacingConfig(steps_per_update=12.0),
        network=NetworkConfig(normalize_observations=True, follow_rewards=True, value_scale=10.0),
        optimizer=OptimizerConfig(learning_rate=3e-4, learning_rate_end="constant", clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
        evaluation=_CONTROL,
    ),
)
OURS: dict[str, TrainConfig] = {config.preset: config for config in _OURS}

for _name, _discount in (("a3c", 0.95), ("ppo", 0.99)):
    _like = OURS[f"{_name}-vectors"]
    OURS[f"{_name}-control"] = replace(
        _like,
        preset=f"{_name}-control",
        learning=replace(_like.learning, discount=_discount),
        network=replace(_VECTORS, normalize_observations=True, follow_rewards=True),
        evaluation=_CONTROL,
    )

PRESETS: dict[str, TrainConfig] = {**OURS, **PUBLISHED}
"""All presets but `default`, which stands for one of ours."""


def described(config: TrainConfig) -> str:
    """Names the preset that a run started from, and its algorithm if it is another one."""
    name = config.preset
    if name not in PRESETS:
        return f"settings of preset {name}"
    other = PRESETS[name].algorithm != config.algorithm
    learned = f", learned by {config.algorithm}" if other else ""
    return f"settings of preset {name} ({PRESET_LINES[name]}){learned}"
