"""A peer that plays the ledger correctly, but also sends steps twice, too late or too early."""

import random
import time
from typing import NamedTuple

import gymnasium
import numpy as np

import tests.tiny  # noqa: F401  registers the ledger
from agents import messages
from agents.headers import Header, Kind
from agents.link import received
from agents.messages import OUTCOME, Step
from benchmarks.faults.siege import Siege

ANSWER_MS = 20_000
PAUSE_S = 0.005  # between two steps: the service's own agents are no faster
EARLY = 2  # a step this far ahead is useless, however late it comes


class Sent(NamedTuple):
    """A step on the wire."""

    sequence: int
    parts: list[bytes]


class Envs:
    """A group of ledgers; each begins its next episode in the step after an end."""

    def __init__(self, n: int, seed: int) -> None:
        self._envs = [gymnasium.make("Ledger-v0").unwrapped for _ in range(n)]
        self._seed = seed
        self._ended = np.ones(n, bool)

    def step(self, actions: np.ndarray) -> Step:
        """What they return for actions, [n]."""
        frames, outcomes = [], np.zeros(len(self._envs), OUTCOME)
        for number, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            if self._ended[number]:
                seed = self._seed + number if self._seed >= 0 else None
                frame, _ = env.reset(seed=seed)
                outcomes[number]["first"], self._ended[number] = 1, False
            else:
                frame, reward, terminated, truncated, _ = env.step(action)
                outcomes[number]["reward"] = reward
                outcomes[number]["terminated"], outcomes[number]["truncated"] = (
                    terminated,
                    truncated,
                )
                outcomes[number]["finished"] = self._ended[number] = terminated or truncated
            frames.append(frame)
        self._seed = -1
        return Step(np.stack(frames).astype(np.float32), outcomes)


class Stutterer:
    """Plays all groups of the lanes that the service reserves for it."""

    def __init__(self, siege: Siege, seed: int) -> None:
        self._hello = siege.hello
        self._socket = siege.guest("stutterer")
        self._rng = random.Random(seed)
        n = self._hello.envs_per_group
        self._envs = [Envs(n, 10_000 + 100 * g) for g in range(self._hello.groups)]
        self._sent: list[list[Sent]] = [[] for _ in self._envs]
        self._actions = [np.zeros(n, np.int32) for _ in self._envs]
        self._answers: dict[int, tuple[int, np.ndarray]] = {}  # newest of each group

    def play(self, seconds: float, stutters: bool) -> int:
        """Play for a while. Returns how many messages were sent beyond one per step."""
        wrong, until_s, actions = 0, time.monotonic() + seconds, self._actions
        while time.monotonic() < until_s:
            for group in self._rng.sample(range(len(self._envs)), len(self._envs)):
                wrong += self._send(group, self._envs[group].step(actions[group]), stutters)
            for group in self._rng.sample(range(len(self._envs)), len(self._envs)):
                actions[group] = self._answer(group)
                wrong += self._again(group) if stutters else 0
            time.sleep(PAUSE_S)
        return wrong

    def _send(self, group: int, step: Step, stutters: bool) -> int:
        """Send a step, perhaps several times, among older and later ones."""
        sequence = self._sent[group][-1].sequence + 1 if self._sent[group] else 0
        parts = self._encoded(group, sequence, step)
        self._sent[group] = [*self._sent[group][-3:], Sent(sequence, parts)]
        early = self._encoded(group, sequence + EARLY, step)
        others = [early, *(each.parts for each in self._sent[group][:-2])]
        wrong = [each for each in others if self._rng.random() < 0.5]
        wrong += [parts] * self._rng.randrange(3)
        wrong = wrong if stutters else []
        for each in (*wrong[:1], parts, *wrong[1:]):
            self._socket.send_multipart(each)
        return len(wrong)

    def _encoded(self, group: int, sequence: int, step: Step) -> list[bytes]:
        header = Header(Kind.STEP, group, len(step.frames), sequence)
        return [bytes(part) for part in messages.encode_step(header, step)]

    def _again(self, group: int) -> int:
        """Perhaps resend the step that was just answered. Its answer is repeated."""
        again = self._rng.randrange(2)
        for _ in range(again):
            self._socket.send_multipart(self._sent[group][-1].parts)
        return again

    def _answer(self, group: int) -> np.ndarray:
        """The answer to the group's last step; repeated ones are skipped."""
        wanted = self._sent[group][-1].sequence
        while self._answers.get(group, (-1, 0))[0] != wanted:
            if not self._socket.poll(ANSWER_MS):
                raise RuntimeError(f"no answer to step {wanted} of group {group}")
            parts = received(self._socket)
            header = messages.decode_header(parts[0])
            actions = messages.decode_actions(parts, self._hello.actions)
            self._answers[header.group] = header.sequence, actions
        return self._answers[group][1]
