"""The settings of the published systems.

Every value that a paper or its public code states is written here, and so is every other value that
shapes learning, so that a default that changes elsewhere changes nothing here. Only settings of
where things run are left to the defaults (backend, experience, transport, threads, timeouts).
"""

from dataclasses import replace

from agents.environments import EnvironmentConfig
from ga3c.settings.learning import (
    A3CConfig,
    DQNConfig,
    LearningConfig,
    NetworkConfig,
    OptimizerConfig,
)
from ga3c.settings.replay import PacingConfig, ReplayConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig

ANY_HORIZON_STEPS = 10_000_000  # for schedules along which nothing changes: any value would do

# All of them clip rewards to [-1, 1] or to their signs: the same for Atari's integer rewards.
_LEARNING = LearningConfig(discount=0.99, reward_clip=1.0, max_refused_updates=100)

_FIXED_COUNTS = SchedulerConfig(
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
        # Their trainer adds segments while its batch has at most its minimum of samples. With their
        # minimum of 0 every update is therefore one segment.
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
    learning=_LEARNING,
    a3c=A3CConfig(
        entropy_weight=0.01,
        entropy_weight_end=0.01,
        value_weight=0.5,
        trace_decay=1.0,
        correction="none",
        normalize_advantages=False,
        log_epsilon=1e-6,
    ),
    network=NetworkConfig(
        network="small",
        pixel_scale="symmetric",
        padding="same",
        center=False,
        initializer="fan-in",
        separate_value=False,
        value_scale=1.0,
        precision="float32",
    ),
    optimizer=OptimizerConfig(
        optimizer="rmsprop",
        learning_rate=3e-4,
        learning_rate_end=3e-4,
        schedule_steps=ANY_HORIZON_STEPS,
        rms_decay=0.99,
        rms_centered=False,
        momentum=0.0,
        rms_start=1.0,  # TensorFlow 1's
        optimizer_epsilon=0.1,
        clip_norm=0.0,
    ),
    # The paper proposes counts once a minute, its code every 20 s. Ours takes a minute: a window
    # with the current counts and one with the proposed counts, with settling time before each.
    scheduler=replace(_FIXED_COUNTS, scheduler="random", settle_s=10.0, window_s=20.0),
)

# Mnih et al. 2015: one environment, and one update every four steps, strictly in turn. The gradient
# is that of the summed loss. RMSProp is centred, with an epsilon of 0.01 inside the root.
DQN = TrainConfig(
    algorithm="dqn",
    preset="dqn",
    environment=EnvironmentConfig(
        game="Pong",
        action_repeat=4,
        sticky_actions=0.0,
        noop_max=31,  # 0 to 30
        fire_on_reset=True,
        max_pool=True,
        life_loss_terminates=True,
        full_action_space=False,
        frame_cap=108_000,
        frame_size=84,
        pixels="uint8",
        stack=4,
    ),
    service=replace(
        PAPER.service,
        agents=1,
        predictors=1,
        trainers=1,
        max_agents=1,
        max_predictors=4,
        max_trainers=4,
    ),
    learning=_LEARNING,
    dqn=DQNConfig(
        double=False,
        dueling=False,
        dueling_gradient_scale=1.0,
        huber_delta=1.0,
        loss_reduction="sum",
        epsilon_start=1.0,
        epsilon_end=0.1,
        epsilon_steps=1_000_000,
    ),
    replay=ReplayConfig(
        n_step=1,
        batch_size=32,
        target_period=10_000,
        replay_steps=1_000_000,
        replay_min_steps=50_000,
        replay_draws="uniform",
        replay_repeats=True,
        priority_exponent=0.6,
        importance_exponent=0.4,
        importance_exponent_end=1.0,
        update_size=1,
        save_replay=False,
    ),
    pacing=PacingConfig(pacing="ratio", steps_per_update=4.0, slack_steps=4, period_steps=10_000),
    network=NetworkConfig(
        network="nature",
        pixel_scale="unit",
        padding="valid",
        center=False,
        initializer="fan-in",
        separate_value=False,
        value_scale=1.0,
        precision="float32",
    ),
    optimizer=OptimizerConfig(
        optimizer="rmsprop",
        learning_rate=2.5e-4,
        learning_rate_end=2.5e-4,
        schedule_steps=ANY_HORIZON_STEPS,
        rms_decay=0.95,
        rms_centered=True,
        momentum=0.0,
        rms_start=0.0,
        optimizer_epsilon=0.01,
        clip_norm=0.0,
    ),
    scheduler=_FIXED_COUNTS,
)

# Wang et al. 2016: the gradient of both streams is multiplied by 1 / sqrt(2) before it enters the
# shared layers. Their learning rate is "slightly lower" than double DQN's. 6.25e-5 is the rate of
# Schaul et al. 2016.
DUELING = replace(
    DQN,
    preset="dueling",
    dqn=replace(DQN.dqn, double=True, dueling=True, dueling_gradient_scale=2**-0.5),
    optimizer=replace(
        DQN.optimizer, learning_rate=6.25e-5, learning_rate_end=6.25e-5, clip_norm=10.0
    ),
)

# Parr 2018. The paper does not say which actors play, how much they play or how they explore. These
# settings are ours, on a task with vectors. Its public code uses the mean of the losses (next to a
# sum, 32 times as large, the optimizer's epsilon would have no effect), TensorFlow 1's RMSProp, and
# one update per step.
IN_GPU_REPLAY = replace(
    DQN,
    preset="in-gpu-replay",
    environment=replace(
        DQN.environment, game="CartPole-v1", stack=None, sticky_actions=None, noop_max=30
    ),
    service=replace(DQN.service, max_agents=None, envs_per_agent=8, groups=2),
    dqn=replace(
        DQN.dqn, dueling=True, loss_reduction="mean", epsilon_end=0.01, epsilon_steps=50_000
    ),
    replay=replace(DQN.replay, replay_min_steps=10_000, update_size=2000),
    pacing=replace(DQN.pacing, steps_per_update=1.0, slack_steps=256),
    network=replace(DQN.network, network="parr", initializer="orthogonal"),
    optimizer=replace(DQN.optimizer, rms_centered=False, momentum=0.95, rms_start=1.0),
)

# Daley and Amato 2021: 8 samplers, Concurrent Training and Synchronized Execution. One of their
# no-ops is a step of four frames. The target's period is 10,000 steps, which are 2,500 updates.
FAST_DQN = replace(
    DQN,
    preset="fast-dqn",
    environment=replace(DQN.environment, noop_max=121, max_pool=False, frame_cap=18_000),
    service=replace(DQN.service, agents=8, max_agents=8, synchronized=True),
    replay=replace(DQN.replay, target_period=2_500),
    pacing=replace(DQN.pacing, pacing="target-period"),
)

PUBLISHED: dict[str, TrainConfig] = {
    config.preset: config for config in (PAPER, DQN, DUELING, IN_GPU_REPLAY, FAST_DQN)
}
