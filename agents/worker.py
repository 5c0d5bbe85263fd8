"""One agent process: groups of environments, of which one steps while the others await actions.

It is started by `agents.start` and reads `Task`s from its standard input, one JSON object a line:
the first task at its start, another one when it has retired and should play again. Its parent
keeps that input open; when the input ends, the parent has ended, and so does the agent.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import zmq

from agents import messages
from agents.environments import EnvironmentConfig, Environments
from agents.link import LINGER_MS, Curve, Link
from agents.messages import Header, Hello, Kind
from agents.registrations import take_over


@dataclass(frozen=True)
class Task:
    """What an agent process needs to know. Later tasks are for the same environments."""

    identity: str  # on the wire, unique
    endpoint: str
    token: str
    groups: int
    envs_per_group: int
    seed: int  # of the environments; used by the first task only, in which they are new
    environment: EnvironmentConfig
    stagger_steps: int = 0  # first games are cut short after up to this many steps
    played: str | None = None  # file with the earlier actions of the only group: [t, n, *shape]
    played_steps: int = 0  # the first t of them are played once more
    registration: str | None = None  # of the environment, in the form of `agents.registrations`
    curve: Curve | None = None  # the keys with which a host's agents connect
    pack: bool = False  # whether frames are sent compressed

    def to_json(self) -> str:
        """The task as one line, for `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Task":
        """The task in `text`. Raises what `of` raises."""
        return Task.of(json.loads(text))

    @staticmethod
    def of(values: dict[str, Any]) -> "Task":
        """The task with these fields. Raises KeyError, TypeError or ValueError if one is wrong."""
        played = EnvironmentConfig(**values["environment"])
        curve = values.get("curve")
        keys = Curve(*curve) if curve is not None else None
        return Task(**{**values, "environment": played, "curve": keys})


def play(link: Link, task: Task, groups: list[Environments], new: bool) -> None:
    """Play until the service asks the agent to retire, and confirm that.

    Args: new: whether the environments are new; only then they are reset with the task's seed.
    """
    spaces = groups[0].spaces
    hello = Hello(
        task.token,
        spaces.shape,
        spaces.dtype,
        spaces.actions,
        task.groups,
        task.envs_per_group,
    )
    link.greet(hello)
    seeds = np.random.SeedSequence(task.seed).generate_state(task.groups)
    played: Any = ()
    if task.played and task.played_steps:
        shape = (task.played_steps, task.envs_per_group, *spaces.actions.shape)
        played = np.memmap(task.played, spaces.actions.kept_dtype, "r", shape=shape)
    for group, (environments, seed) in enumerate(zip(groups, seeds, strict=True)):
        began = time.monotonic()
        step = environments.reset(int(seed) if new else None)
        for actions in played:
            step = environments.step(actions.astype(spaces.actions.dtype))
        header = Header(
            Kind.STEP,
            group,
            task.envs_per_group,
            len(played),
            stepped_s=time.monotonic() - began,
        )
        link.send(header, step)
    while True:
        wait_started = time.monotonic()
        answer, parts = link.receive()
        step_started = time.monotonic()
        if answer.kind == Kind.RETIRE:
            break
        group = answer.group
        actions = messages.decode_actions(parts, spaces.actions)
        step = groups[group].step(actions)
        header = Header(
            Kind.STEP,
            group,
            task.envs_per_group,
            answer.sequence + 1,
            waited_s=step_started - wait_started,
            stepped_s=time.monotonic() - step_started,
        )
        link.send(header, step)
    link.rest()


def _listen(lines: "queue.SimpleQueue[bytes]") -> None:
    """Pass on the parent's lines. End the process when the input ends or cannot be read."""
    partial = b""
    try:
        # os.read has no buffer with a lock, which this thread would hold when the process ends.
        while data := os.read(0, 4096):
            *whole, partial = (partial + data).split(b"\n")
            for line in whole:
                lines.put(line)
    finally:  # the main thread may be waiting for a line that will never come
        os._exit(1)


def main() -> int:
    """Play one task after another. If one fails, send the traceback to the service and return 1."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    context = zmq.Context()
    groups: list[Environments] = []
    while True:
        task = Task.from_json(lines.get().decode())
        to = (task.endpoint, task.identity, task.token, task.curve, task.pack)
        with Link(context, *to) as link:
            try:
                new = not groups
                if new and task.registration:
                    take_over(task.registration)
                for group in range(task.groups if new else 0):
                    number = group * task.envs_per_group
                    groups.append(
                        Environments(
                            task.environment,
                            task.envs_per_group,
                            first_number=number,
                            stagger_steps=task.stagger_steps,
                        )
                    )
                play(link, task, groups, new)
            except Exception:
                text = traceback.format_exc()
                with contextlib.suppress(OSError):  # standard error may be closed
                    print(text, file=sys.stderr)
                link.fail(text)
                break
    context.destroy(linger=LINGER_MS)
    return 1


if __name__ == "__main__":
    sys.exit(main())
