"""Slow, obviously correct versions of the replays in `ga3c/experience/` and of Q-learning in
`ga3c/learning/dqn.py`."""

from typing import NamedTuple

import numpy as np

from tests.reference import Array, NaiveStacker


class NaiveStep(NamedTuple):
    """The record of one step of a lane."""

    observation: Array
    reward: float
    discount: float
    first: bool
    action: Array


class NaiveTransition(NamedTuple):
    """The transition that a drawn step should give."""

    observation: Array
    action: Array
    rewards: list[float]  # of at most n steps, fewer before a reset
    discounts: list[float]
    next_observation: Array


class NaiveReplay:
    """Keeps all steps of all lanes in lists, and knows which of them may be drawn."""

    def __init__(self, lanes: int, stack: int, window: int, n_step: int, reserve: int) -> None:
        self._stacker = NaiveStacker(lanes, stack)
        self._stack, self._window, self._n_step = stack, window, n_step
        self._reserve = reserve
        self.lanes: list[list[NaiveStep]] = [[] for _ in range(lanes)]
        self._visible = [0] * lanes
        self._busiest_then = [0] * lanes  # the busiest lane's steps when this one last grew
        self._gone = [0] * lanes  # how many steps can never be drawn again

    def add(self, lane: int, frame: Array, outcome: Array, action: Array) -> None:
        """Add a step. Args: outcome: reward, discount, first."""
        observation = self._stacker.push(lane, frame, bool(outcome[2]))
        reward, discount, first = (float(each) for each in outcome)
        self.lanes[lane].append(NaiveStep(observation, reward, discount, bool(first), action))

    def flush(self) -> None:
        """Make all steps visible. Those beyond the window leave, and old ones of an idle lane."""
        busiest = max(len(steps) for steps in self.lanes)
        for lane, steps in enumerate(self.lanes):
            if len(steps) > self._visible[lane]:
                self._busiest_then[lane] = busiest
            self._visible[lane] = len(steps)
            idle = max(busiest - self._busiest_then[lane] - self._reserve, 0)
            left = len(steps) + idle - self._window
            if left > 0:
                left = min(left + self._stack - 1, len(steps))
                self._gone[lane] = max(self._gone[lane], left)

    def drawable(self) -> set[tuple[int, int]]:
        """(lane, step) of all that may be drawn now."""
        found = set()
        for lane, steps in enumerate(self.lanes):
            visible = self._visible[lane]
            for step in range(visible - self._n_step):
                if step >= self._gone[lane] and not steps[step + 1].first:
                    found.add((lane, step))
        return found

    def transition(self, lane: int, step: int) -> NaiveTransition:
        """The transition from that step to n steps later, or to the last one before a reset."""
        steps = self.lanes[lane]
        rewards, discounts, last = [], [], step
        for following in range(step + 1, step + 1 + self._n_step):
            if steps[following].first:
                break
            rewards.append(steps[following].reward)
            discounts.append(steps[following].discount)
            last = following
        return NaiveTransition(
            steps[step].observation,
            steps[step].action,
            rewards,
            discounts,
            steps[last].observation,
        )


class NaiveSlots:
    """The step in each slot, and the size of its error."""

    def __init__(self, slots: int, exponent: float, seed: int) -> None:
        self._exponent, self._seed = exponent, seed
        self._slots = slots
        self.steps: list[tuple[int, int]] = []  # lane and step in each slot
        self.sizes: list[float] = []  # of the error
        self.gone: list[tuple[int, int]] = []
        self.inserted = 0

    def insert(self, steps: list[tuple[int, int]], sizes: list[float]) -> None:
        """Append steps while there is room. After that, each one replaces a victim."""
        room = self._slots - len(self.steps)
        victims = self._victims(len(steps) - room) if len(steps) > room else []
        self.steps += steps[:room]
        self.sizes += sizes[:room]
        for slot, step, size in zip(victims, steps[room:], sizes[room:], strict=True):
            self.gone.append(self.steps[slot])
            self.steps[slot], self.sizes[slot] = step, size
        self.inserted += len(steps)

    def _victims(self, count: int) -> list[int]:
        """Different full slots, those with small errors more likely (the exponent is at most 0)."""
        draws = np.random.default_rng([self._seed, self.inserted])
        left = {slot: size**self._exponent for slot, size in enumerate(self.sizes)}
        victims: list[int] = []
        while len(victims) < count:
            missing = count - len(victims)
            found = set()
            for i, part in enumerate(draws.random(missing)):
                point = (i + part) / missing * sum(left.values())
                ends = np.cumsum(list(left.values()))
                found.add(list(left)[int((ends <= point).sum())])
            for slot in sorted(found):
                victims.append(slot)
                del left[slot]
        return victims


def q_target(
    rewards: list[float],
    discounts: list[float],
    next_q: Array,
    next_q_target: Array,
    double: bool,
) -> float:
    """The target of one transition, from the action values [actions] of its last observation."""
    chooser = next_q if double else next_q_target
    value = float(next_q_target[int(np.argmax(chooser))])
    for reward, discount in zip(reversed(rewards), reversed(discounts), strict=True):
        value = reward + discount * value
    return value


def huber(error: float, delta: float) -> float:
    """Quadratic within delta, linear beyond; delta 0: quadratic everywhere."""
    if not delta or abs(error) <= delta:
        return error**2 / 2
    return delta * (abs(error) - delta / 2)
