"""GA3C's published settings, and what all published presets have in common.

Every value that a paper or its public code states is written here, and so is every other value that
shapes learning, so that changing a default elsewhere changes nothing here. Only settings of
where things run are left to the defaults (backend, experience, transport, threads, timeouts).
"""

from dataclasses import replace

from agents.environments import EnvironmentConfig
from ga3c.settings.learning import A3CConfig, LearningConfig, NetworkConfig, OptimizerConfig
from ga3c.settings.run import EvaluationConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig

# All of them clip rewards to [-1, 1] or to their signs: the same for Atari's integer rewards.
LEARNING = LearningConfig(discount=0.99, reward_clip=1.0, max_refused_updates=100)

FIXED_COUNTS = SchedulerConfig(
    scheduler="off",
    settle_s=5.0,
    window_s=15.0,
    wins=2,
    margin=0.03,
    temperature=0.01,
    cooling=0.8,
    patience=4.0,
    max_policy_lag=None,
    max_memory_mb=None,
)

# Babaeizadeh et al. 2017, and their public code. The code plays the games of that year's Gym as
# they are: sticky actions, no FIRE, only the last frame of a step (no maximum over two), whole
# games with all lives, at most 100,000 steps. It fills the first stack with no-ops, about as many
# as `noop_max` draws.
PAPER = TrainConfig(
    algorithm="a3c",
    preset="paper",
    environment=EnvironmentConfig(
        game="Pong",
        env_args=(),
        info_keys=(),
        action_repeat=4,
        sticky_actions=0.25,
        noop_max=17,
        fire_on_reset=False,
        max_pool=False,
        life_loss_terminates=False,
        full_action_space=False,
        frame_cap=400_000,
        frame_size=84,
        pixels="uint8",
        stack=4,
    ),
    service=ServiceConfig(
        agents=32,
        predictors=2,
        trainers=2,
        max_agents=64,
        max_predictors=16,
        max_trainers=16,
        envs_per_agent=1,
        groups=1,
        stagger_steps=0,
        prediction_batch_min=1,
        prediction_batch_max=128,
        prediction_wait_s=0.005,
        # Their trainer adds segments until its batch exceeds its minimum of samples. With their
        # minimum of 0, every update is therefore a single segment.
        t_max=5,
        training_batch_min=0,
        training_batch_max=5,
        passes=1,
        minibatch=None,
        training_wait_s=1.0,
        training_queue=500,  # 100 segments
        pending_segments=2,
        synchronized=False,
        lockstep=False,
    ),
    learning=LEARNING,
    a3c=A3CConfig(
        entropy_weight=0.01,
        entropy_weight_end=None,
        value_weight=0.5,
        trace_decay=1.0,
        correction="none",
        normalize_advantages=False,
        log_epsilon=1e-6,
    ),
    network=NetworkConfig(
        network="small",
        units=None,
        pixel_scale="symmetric",
        padding="same",
        center=False,
        layer_norm=False,
        initializer="fan-in",
        separate_value=False,
        normalize_observations=False,
        follow_rewards=False,
        value_scale=1.0,
        precision="float32",
    ),
    optimizer=OptimizerConfig(
        optimizer="rmsprop",
        learning_rate=3e-4,
        learning_rate_end="constant",
        schedule_steps=None,
        rms_decay=0.99,
        rms_centered=False,
        momentum=0.0,
        rms_start=1.0,  # TensorFlow 1's
        optimizer_epsilon=0.1,
        clip_norm=0.0,
    ),
    # The paper proposes counts once a minute, its code every 20 s. Ours takes a minute: a window
    # with the current counts and one with the proposed counts, with settling time before each.
    scheduler=replace(FIXED_COUNTS, scheduler="random", settle_s=10.0, window_s=20.0),
    evaluation=EvaluationConfig(evaluate_episodes=30, evaluate_protocol="paper"),
)
