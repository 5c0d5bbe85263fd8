"""One agent process: groups of environments, one of which steps while the others await actions.

It is started by `agents.start` and reads `Task`s from its standard input, one JSON object per line:
the first task at startup, another one when it has retired and should play again. A task that names
no service only makes the first environments of the next task. The parent keeps that input open;
when it closes, the parent has ended or wants the agent to: the agent closes its environments, which
may have processes of their own, and ends. If the parent is killed, the agent is killed at once.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import zmq

from agents import messages, registrations
from agents.environments import EnvironmentConfig, Environments, FailedEnvironment, Spaces
from agents.link import LINGER_MS, Curve, Link
from agents.messages import Header, Hello, Kind
from agents.signals import end_with_parent

CLOSING_S = 1.0  # time for all of an agent's environments together to close


class _InputEnded(BaseException):
    """Raised in the main thread, wherever it is, when the agent's input has ended."""


@dataclass(frozen=True)
class Task:
    """What an agent process needs to know. Later tasks reuse its environments."""

    identity: str  # on the wire, unique
    endpoint: str  # empty: there is no service yet
    token: str
    groups: int
    envs_per_group: int
    seed: int | None  # of new environments; None: they seed themselves, which is faster
    environment: EnvironmentConfig
    stagger_steps: int = 0  # first games are cut short after up to this many steps
    played: str | None = None  # file with the earlier actions of the only group: [t, n, *shape]
    played_steps: int = 0  # the first t of them are replayed
    registration: str | None = None  # the environment's, as `agents.registrations` writes it
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


def _made(task: Task, group: int) -> Environments:
    """The new environments of a group."""
    number = task.envs_per_group
    return Environments(
        task.environment,
        number,
        first_number=group * number,
        stagger_steps=task.stagger_steps,
    )


def _hello(task: Task, spaces: Spaces) -> Hello:
    shown = spaces.shape, spaces.dtype, spaces.actions
    return Hello(task.token, *shown, task.groups, task.envs_per_group, len(spaces.info_keys))


def begin(link: Link, task: Task, groups: list[Environments]) -> None:
    """Say hello, and send each group's first step as soon as the group is made.

    Args: groups: those of an earlier task; missing ones are made.
    """
    seeds = np.random.SeedSequence(task.seed).generate_state(task.groups)
    for group, seed in enumerate(seeds):
        if new := group >= len(groups):
            groups.append(_made(task, group))
        environments = groups[group]
        if group == 0:
            link.greet(_hello(task, environments.spaces))
        began_s = time.monotonic()
        step = environments.reset(int(seed) if new and task.seed is not None else None)
        played = _played(task, environments.spaces)
        for actions in played:
            step = environments.step(actions.astype(environments.spaces.actions.dtype))
        stepped_s = time.monotonic() - began_s
        header = Header(Kind.STEP, group, task.envs_per_group, len(played), stepped_s=stepped_s)
        link.send(header, step)


def _played(task: Task, spaces: Spaces) -> Any:
    """The earlier actions of the only group, [t, n, *shape], to replay."""
    if not (task.played and task.played_steps):
        return ()
    shape = (task.played_steps, task.envs_per_group, *spaces.actions.shape)
    return np.memmap(task.played, spaces.actions.kept_dtype, "r", shape=shape)


def play(link: Link, task: Task, groups: list[Environments]) -> None:
    """Play until the service asks the agent to retire, then confirm."""
    begin(link, task, groups)
    actions_space = groups[0].spaces.actions
    while True:
        wait_started = time.monotonic()
        answer, parts = link.receive()
        step_started = time.monotonic()
        if answer.kind == Kind.RETIRE:
            break
        group = answer.group
        actions = messages.decode_actions(parts, actions_space)
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


def _own_input() -> int:
    """A descriptor of the standard input, which is empty from now on.

    Otherwise, a program that an environment starts could read the agent's tasks.
    """
    own, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return own


def _listen(parent: int, lines: "queue.SimpleQueue[bytes]") -> None:
    """Pass on the parent's lines. When the input ends or cannot be read, end the process."""
    partial = b""
    try:
        # os.read has no buffer lock, which this thread would hold when the process ends.
        while data := os.read(parent, 4096):
            *whole, partial = (partial + data).split(b"\n")
            for line in whole:
                lines.put(line)
    finally:  # the main thread may be waiting for a line that will never come
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        time.sleep(CLOSING_S)
        os._exit(1)


def _hear_the_end(*_: object) -> None:
    raise _InputEnded


def _no_breakpoint(*_: object, **__: object) -> None:
    raise RuntimeError(
        "breakpoint() in an agent, which is a process without a terminal: step the environment in "
        "a program of your own (docs/extending.md says how)"
    )


def main() -> int:
    """Play until the input ends. If a task fails, send the service its traceback and return 1."""
    # The input ends too, but that goes unnoticed while an environment holds the GIL, as ALE does
    # for seconds while many games are made.
    end_with_parent(signal.SIGKILL)
    registrations.in_agent = True
    sys.breakpointhook = _no_breakpoint  # a debugger would read the tasks on stdin as commands
    signal.signal(signal.SIGUSR1, _hear_the_end)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    groups: list[Environments] = []
    try:
        threading.Thread(target=_listen, args=(_own_input(), lines), daemon=True).start()
        try:
            _play_all(lines, groups)
        finally:
            _close(groups)
    except _InputEnded:
        os._exit(1)  # without sending what is queued, or waiting for other cleanup
    return 1


def _close(groups: list[Environments]) -> None:
    """Close the environments. If they hang, the process ends anyway."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    limit = threading.Timer(CLOSING_S, os._exit, [1])
    limit.daemon = True
    limit.start()
    for environments in groups:
        with contextlib.suppress(FailedEnvironment):
            environments.close()


def _play_all(lines: "queue.SimpleQueue[bytes]", groups: list[Environments]) -> None:
    """Play one task after another until one fails."""
    context = zmq.Context()
    while True:
        task = Task.from_json(lines.get().decode())
        if not task.endpoint:
            groups.append(_made(task, 0))
            continue
        to = (task.endpoint, task.identity, task.token, task.curve, task.pack)
        with Link(context, *to) as link:
            try:
                if not groups and task.registration:
                    registrations.take_over(task.registration)
                play(link, task, groups)
            except Exception:
                text = traceback.format_exc()
                with contextlib.suppress(OSError):  # standard error may be closed
                    print(text, file=sys.stderr)
                link.fail(text)
                break
    context.destroy(linger=LINGER_MS)


if __name__ == "__main__":
    sys.exit(main())
