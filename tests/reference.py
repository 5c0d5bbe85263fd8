"""Slow, obviously correct versions of the fast code: numpy, loops and textbook formulas.

Nothing here is shared with the product. A segment is cut into pieces of one episode each, so that
the textbook's formula applies to each piece as it stands: no masks, no recursions.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Given:
    """A network without layers that gives the same answers to all observations."""

    layers: tuple[Any, ...] = ()

    def __init__(self, *answers: Any) -> None:
        self._answers = answers

    def __call__(self, observations: Any) -> tuple[Any, ...]:
        """The answers."""
        return self._answers


def pieces(firsts: Array) -> Iterator[tuple[int, int]]:
    """The intervals [start, end) between the void steps of a lane [T], each within one episode."""
    start = 0
    for t, first in enumerate([*firsts, 1]):
        if first:
            yield start, t
            start = t + 1


def n_step_returns(values: Array, rewards: Array, discounts: Array, firsts: Array) -> Array:
    """G_t = sum_i (d_{t+1} .. d_i) r_{i+1} + (d_{t+1} .. d_n) v_n, where n ends t's piece.

    Mnih et al. 2016, section 4. values [B, T + 1], the others [B, T]; returns [B, T]. The
    return of a void step is the value of its observation.
    """
    returns = np.array(values[:, :-1])
    for lane in range(len(rewards)):
        for start, end in pieces(firsts[lane]):
            for t in range(start, end):
                total, factor = 0.0, 1.0
                for i in range(t, end):
                    total += factor * rewards[lane, i]
                    factor *= discounts[lane, i]
                returns[lane, t] = total + factor * values[lane, end]
    return returns


def generalized_advantages(
    values: Array, rewards: Array, discounts: Array, firsts: Array, trace_decay: float
) -> Array:
    """A_t = sum_l (gamma lambda)^l delta_{t+l} (Schulman et al. 2016, equation 16); [B, T]."""
    advantages = np.zeros_like(rewards)
    for lane in range(len(rewards)):
        v, r, d = values[lane], rewards[lane], discounts[lane]
        for start, end in pieces(firsts[lane]):
            for t in range(start, end):
                factor = 1.0
                for i in range(t, end):
                    advantages[lane, t] += factor * (r[i] + d[i] * v[i + 1] - v[i])
                    factor *= d[i] * trace_decay
    return advantages


def vtrace_targets(
    values: Array,
    rewards: Array,
    discounts: Array,
    firsts: Array,
    ratios: Array,
    trace_decay: float,
) -> Array:
    """v_s = V(x_s) + sum_t gamma^(t-s) (c_s .. c_{t-1}) delta_t V; [B, T].

    Espeholt et al. 2018, equation 1, with both truncation levels 1, and c_i multiplied by lambda.
    """
    targets = np.array(values[:, :-1])
    for lane in range(len(rewards)):
        v, r, d = values[lane], rewards[lane], discounts[lane]
        rho = [min(1.0, ratio) for ratio in ratios[lane]]
        for start, end in pieces(firsts[lane]):
            for s in range(start, end):
                for t in range(s, end):
                    factor = math.prod(d[i] * trace_decay * rho[i] for i in range(s, t))
                    targets[lane, s] += factor * rho[t] * (r[t] + d[t] * v[t + 1] - v[t])
    return targets


def vtrace_advantages(
    values: Array,
    rewards: Array,
    discounts: Array,
    firsts: Array,
    ratios: Array,
    trace_decay: float,
) -> Array:
    """r_s + gamma v_{s+1} - V(x_s) (Espeholt et al. 2018, section 4.2), not yet times rho; [B, T].

    If lambda < 1, the successor's target has weight lambda and its value 1 - lambda, as in the
    lambda-return. At a piece's end, the target is the value.
    """
    targets = vtrace_targets(values, rewards, discounts, firsts, ratios, trace_decay)
    advantages = np.zeros_like(rewards)
    for lane in range(len(rewards)):
        for start, end in pieces(firsts[lane]):
            for s in range(start, end):
                target = targets[lane, s + 1] if s + 1 < end else values[lane, end]
                successor = trace_decay * target + (1 - trace_decay) * values[lane, s + 1]
                advantages[lane, s] = (
                    rewards[lane, s] + discounts[lane, s] * successor - values[lane, s]
                )
    return advantages


def softmax(logits: Array) -> Array:
    """e^x / sum e^x over the last axis."""
    exponentials: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    normalizers: Array = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / normalizers


def entropy(probs: Array, log_epsilon: float) -> float:
    """-sum p log(p + epsilon) of one distribution [actions]."""
    return -sum(float(p) * math.log(float(p) + log_epsilon) for p in probs)


class Batch(NamedTuple):
    """The input of A3C's loss: B segments of T steps, with A possible actions."""

    logits: Array  # [B, T + 1, A]
    values: Array  # [B, T + 1]
    actions: Array  # [B, T]
    log_probs: Array  # [B, T]
    rewards: Array  # [B, T]
    discounts: Array  # [B, T]
    firsts: Array  # [B, T]


class Weights(NamedTuple):
    """The settings of A3C's loss."""

    value: float
    entropy: float
    trace_decay: float
    reward_clip: float  # 0: rewards are not clipped
    log_epsilon: float
    vtrace: bool
    normalize: bool


class Constants(NamedTuple):
    """What the loss treats as constant: no gradient may flow through it."""

    targets: Array  # [B, T]
    advantages: Array  # [B, T], multiplied by min(1, ratio)


class Loss(NamedTuple):
    """A loss and its unweighted terms, summed over the steps that are not void."""

    total: float
    policy: float
    value: float
    entropy: float


def a3c_constants(batch: Batch, weights: Weights) -> Constants:
    """Targets and advantages of a batch under its own logits and values."""
    ratios = np.ones_like(batch.rewards)
    if weights.vtrace:
        probs = softmax(batch.logits)
        for lane, t in np.ndindex(*ratios.shape):
            chosen = probs[lane, t, batch.actions[lane, t]]
            ratios[lane, t] = chosen / math.exp(batch.log_probs[lane, t])
    rewards = batch.rewards
    if weights.reward_clip:
        rewards = np.clip(rewards, -weights.reward_clip, weights.reward_clip)
    parts = (batch.values, rewards, batch.discounts, batch.firsts, ratios, weights.trace_decay)
    advantages = vtrace_advantages(*parts)
    lived = batch.firsts == 0
    if weights.normalize and lived.any():
        of_lived = advantages[lived]
        advantages = np.where(lived, (advantages - of_lived.mean()) / (of_lived.std() + 1e-8), 0.0)
    return Constants(vtrace_targets(*parts), advantages * np.minimum(1.0, ratios))


def a3c_loss(batch: Batch, weights: Weights, constants: Constants) -> Loss:
    """w sum (G - v)^2 - sum [log(pi(a) + epsilon) A + beta H(pi)], with constant G and A."""
    probs = softmax(batch.logits)
    policy, value, entropies = 0.0, 0.0, 0.0
    for lane, t in np.ndindex(*batch.rewards.shape):
        if batch.firsts[lane, t]:
            continue
        chosen = probs[lane, t, batch.actions[lane, t]]
        policy -= math.log(chosen + weights.log_epsilon) * float(constants.advantages[lane, t])
        value += float(constants.targets[lane, t] - batch.values[lane, t]) ** 2
        entropies += entropy(probs[lane, t], weights.log_epsilon)
    total = policy + weights.value * value - weights.entropy * entropies
    return Loss(total, policy, value, entropies)


def a3c_gradients(batch: Batch, weights: Weights, step: float = 1e-6) -> tuple[Array, Array]:
    """The loss's gradients for logits and values, by central differences with fixed constants."""
    constants = a3c_constants(batch, weights)
    gradients = []
    for name in ("logits", "values"):
        entries = np.array(getattr(batch, name))
        gradient = np.zeros_like(entries)
        for index in np.ndindex(*entries.shape):
            sides = []
            for sign in (1, -1):
                moved = entries.copy()
                moved[index] += sign * step
                sides.append(a3c_loss(batch._replace(**{name: moved}), weights, constants).total)
            gradient[index] = (sides[0] - sides[1]) / (2 * step)
        gradients.append(gradient)
    return gradients[0], gradients[1]


def clip_by_global_norm(gradients: list[Array], limit: float) -> list[Array]:
    """Gradients scaled down to a common Euclidean norm of `limit`, if they are above it."""
    norm = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients))
    return [g * (limit / norm) if norm > limit else g for g in gradients]


def rmsprop_step(
    weight: Array,
    mean_square: Array,
    gradient: Array,
    learning_rate: float,
    decay: float,
    epsilon: float,
) -> tuple[Array, Array]:
    """The new weight and mean square: not centred, no momentum, epsilon inside the square root."""
    mean_square = decay * mean_square + (1 - decay) * gradient**2
    return weight - learning_rate * gradient / np.sqrt(mean_square + epsilon), mean_square


class NaiveStacker:
    """Keeps each lane's newest frames in a deque. A reset's frame fills the whole stack."""

    def __init__(self, lanes: int, stack: int) -> None:
        self._stack = stack
        self._frames: list[deque[Array]] = [deque(maxlen=stack) for _ in range(lanes)]

    def push(self, lane: int, frame: Array, first: bool) -> Array:
        """Add a frame. Returns the lane's observation: stacked on the last axis if `stack` > 1."""
        frames = self._frames[lane]
        for _ in range(self._stack if first else 1):
            frames.append(frame.copy())
        return np.stack(list(frames), axis=-1) if self._stack > 1 else frame.copy()


class NaiveExperience:
    """All observations, outcomes and decisions of every lane, kept forever in lists."""

    def __init__(self, lanes: int, stack: int) -> None:
        self._stacker = NaiveStacker(lanes, stack)
        self.observations: list[list[Array]] = [[] for _ in range(lanes)]
        self.outcomes: list[list[Array]] = [[] for _ in range(lanes)]  # one for each observation
        self.decisions: list[list[tuple[int, float]]] = [[] for _ in range(lanes)]

    def see(self, lane: int, frame: Array, outcome: Array) -> Array:
        """Add a frame with its outcome: reward, discount, first. Returns the observation."""
        observation = self._stacker.push(lane, frame, bool(outcome[2]))
        self.observations[lane].append(observation)
        self.outcomes[lane].append(outcome.copy())
        return observation

    def do(self, lane: int, action: int, log_prob: float) -> None:
        """Add the decision that was made at the newest observation."""
        self.decisions[lane].append((action, log_prob))

    def segments(self, lanes: list[int], starts: list[int], steps: int) -> dict[str, Array]:
        """The segments' observations [B, T + 1, ...] and the other parts of a `Batch` [B, T]."""
        where = list(zip(lanes, starts, strict=True))
        seen = [self.observations[lane][start : start + steps + 1] for lane, start in where]
        done = [self.decisions[lane][start : start + steps] for lane, start in where]
        answered = [self.outcomes[lane][start + 1 : start + steps + 1] for lane, start in where]
        decisions, outcomes = np.array(done, np.float64), np.array(answered, np.float64)
        return {
            "observations": np.array(seen),
            "actions": decisions[..., 0].astype(np.int32),
            "log_probs": decisions[..., 1],
            "rewards": outcomes[..., 0],
            "discounts": outcomes[..., 1],
            "firsts": outcomes[..., 2],
        }


class NaiveLane:
    """A lane's ring as a dictionary from slot to step, and the promised steps as sets.

    At first, the slots hold the steps -capacity to -1: a stack near step 0 reaches back to them.
    """

    def __init__(self, capacity: int, t_max: int, stack: int) -> None:
        self._capacity = capacity
        self._t_max = t_max
        self._stack = stack
        self.held = {slot: slot - capacity for slot in range(capacity)}
        self.step = -1  # the newest
        self.promised: dict[int, set[int]] = {}  # by segment start, until its release

    def would_overwrite(self) -> int:
        """The step whose record the next step would overwrite."""
        return self.held[(self.step + 1) % self._capacity]

    def may_advance(self) -> bool:
        """Whether the next step would overwrite no promised one."""
        return all(self.would_overwrite() not in steps for steps in self.promised.values())

    def advance(self) -> None:
        """Write the next step."""
        self.step += 1
        self.held[self.step % self._capacity] = self.step

    def promise(self, start: int) -> None:
        """Keep a completed segment: T + 1 observations, and the older frames of their stacks."""
        self.promised[start] = set(range(start - self._stack + 1, start + self._t_max + 1))

    def needed(self) -> set[int]:
        """Steps that must be in the ring: promised ones, and the unfinished segment's stacks."""
        filling = max(self.step, 0) // self._t_max * self._t_max
        return set(range(filling - self._stack + 1, self.step + 1)).union(*self.promised.values())
