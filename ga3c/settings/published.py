"""Presets of published systems: those that learn from a replay; GA3C is in `published_a3c`.

Every value that a paper or its public code states is written in these two files, and so is every
other value that shapes learning; `published_a3c` says why.
"""

from dataclasses import replace

from agents.environments import EnvironmentConfig
from ga3c.settings.learning import DPGConfig, DQNConfig, NetworkConfig, OptimizerConfig
from ga3c.settings.published_a3c import FIXED_COUNTS, LEARNING, PAPER
from ga3c.settings.replay import PacingConfig, ReplayConfig
from ga3c.settings.run import EvaluationConfig
from ga3c.settings.train import TrainConfig

# Mnih et al. 2015: one environment, and one update every four steps, strictly in turn. The gradient
# is that of the summed loss. RMSProp is centred, with an epsilon of 0.01 inside the root.
DQN = TrainConfig(
    algorithm="dqn",
    preset="dqn",
    environment=EnvironmentConfig(
        game="Pong",
        env_args=(),
        info_keys=(),
        action_repeat=4,
        sticky_actions=0.0,
        noop_max=31,  # 0 to 30
        fire_on_reset=False,
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
    learning=LEARNING,
    dqn=DQNConfig(
        double=False,
        dueling=False,
        dueling_gradient_scale=1.0,
        huber_delta=1.0,
        loss_reduction="sum",
        exploration="schedule",
        ladder_base=0.4,
        ladder_exponent=7.0,
        ladder_rungs=None,
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
        eviction="fifo",
        eviction_exponent=-0.4,
        replay_draws="uniform",
        first_priority="largest",
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
        units=None,
        pixel_scale="unit",
        padding="valid",
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
        learning_rate=2.5e-4,
        learning_rate_end="constant",
        schedule_steps=None,
        rms_decay=0.95,
        rms_centered=True,
        momentum=0.0,
        rms_start=0.0,
        optimizer_epsilon=0.01,
        clip_norm=0.0,
    ),
    scheduler=FIXED_COUNTS,
    evaluation=EvaluationConfig(evaluate_episodes=30, evaluate_protocol="nature"),
)

# Wang et al. 2016: the gradient of both streams is multiplied by 1 / sqrt(2) before it enters the
# shared layers. Their learning rate is "slightly lower" than double DQN's. 6.25e-5 is the rate of
# Schaul et al. 2016.
DUELING = replace(
    DQN,
    preset="dueling",
    dqn=replace(DQN.dqn, double=True, dueling=True, dueling_gradient_scale=2**-0.5),
    optimizer=replace(
        DQN.optimizer, learning_rate=6.25e-5, learning_rate_end="constant", clip_norm=10.0
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
    evaluation=EvaluationConfig(evaluate_episodes=10, evaluate_protocol="trained"),
)

# Daley and Amato 2021: 8 samplers, Concurrent Training and Synchronized Execution. One of their
# no-ops is a step of four frames. The target's period is 10,000 steps, or 2,500 updates.
FAST_DQN = replace(
    DQN,
    preset="fast-dqn",
    environment=replace(
        DQN.environment, noop_max=121, fire_on_reset=True, max_pool=False, frame_cap=18_000
    ),
    service=replace(DQN.service, agents=8, max_agents=8, synchronized=True),
    replay=replace(DQN.replay, target_period=2_500),
    pacing=replace(DQN.pacing, pacing="target-period"),
)

# Horgan et al. 2018: 360 actors, each with a fixed epsilon, prioritised replay, free pacing. Here
# acting is central: four processes step the 360 lanes, and no parameters are copied to them. What
# our copy of the text omits follows Wang et al. 2016 (streams), Mnih et al. 2015 (the game), or how
# others resolved it: half of the squared error, a mean over the batch (RMSProp's epsilon is meant
# for a mean), first errors from the largest acting value.
APEX = replace(
    DQN,
    preset="apex",
    environment=replace(DQN.environment, frame_cap=50_000),
    service=replace(
        DQN.service, agents=4, max_agents=4, envs_per_agent=90, groups=2, prediction_batch_min=45
    ),
    dqn=replace(
        DQN.dqn,
        double=True,
        dueling=True,
        dueling_gradient_scale=2**-0.5,
        huber_delta=0.0,
        loss_reduction="mean",
        exploration="ladder",
        ladder_base=0.4,
        ladder_exponent=7.0,
        ladder_rungs=None,
    ),
    replay=replace(
        DQN.replay,
        n_step=3,
        batch_size=512,
        target_period=2_500,
        replay_steps=2_000_000,
        replay_min_steps=50_000,
        replay_draws="prioritised",
        first_priority="acting",
        priority_exponent=0.6,
        importance_exponent=0.4,
        importance_exponent_end=0.4,
        update_size=1_000,
    ),
    pacing=replace(DQN.pacing, pacing="free"),
    optimizer=replace(
        DQN.optimizer,
        learning_rate=6.25e-5,
        learning_rate_end="constant",
        optimizer_epsilon=1.5e-7,
        clip_norm=40.0,
    ),
    evaluation=replace(DQN.evaluation, evaluate_protocol="apex"),
)

# Horgan et al. 2018, appendix: 64 actors. What our copy of the text lacks is from Acme's D4PG,
# by authors of the paper (learning rate, capacity, noise, clip, layers).
APEX_DPG = replace(
    DQN,
    algorithm="dpg",
    preset="apex-dpg",
    environment=replace(
        DQN.environment,
        game="dm_control/humanoid-stand",
        action_repeat=1,
        stack=1,
        sticky_actions=None,
    ),
    service=replace(
        DQN.service, agents=4, max_agents=4, envs_per_agent=16, groups=2, prediction_batch_min=8
    ),
    learning=replace(DQN.learning, reward_clip=0.0),
    dpg=DPGConfig(
        noise=0.3, action_gradient_clip=1.0, actor_units=(300, 200), critic_units=(400, 300)
    ),
    replay=replace(
        APEX.replay,
        batch_size=256,
        target_period=100,
        replay_steps=1_000_000,
        eviction="priority",
        eviction_exponent=-0.4,
    ),
    pacing=APEX.pacing,
    network=replace(DQN.network, network="auto", layer_norm=True, initializer="fan-in"),
    optimizer=replace(
        DQN.optimizer,
        optimizer="adam",
        learning_rate=1e-4,
        learning_rate_end="constant",
        optimizer_epsilon=1e-8,
    ),
    evaluation=EvaluationConfig(evaluate_episodes=10, evaluate_protocol="control"),
)

PUBLISHED: dict[str, TrainConfig] = {
    config.preset: config
    for config in (PAPER, DQN, DUELING, IN_GPU_REPLAY, FAST_DQN, APEX, APEX_DPG)
}
