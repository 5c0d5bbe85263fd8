"""The saved state of a service: read at one moment, and restored before the next start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ga3c.experience.book import Segment
from ga3c.experience.pacing import Pacing
from ga3c.experience.replay import Replay
from ga3c.experience.replay_pacing import ReplayPacing
from ga3c.experience.segments import SegmentBook
from ga3c.learning.model import Model
from ga3c.runs.action_log import ActionLog
from ga3c.runs.checkpoints import Checkpoint
from ga3c.runs.metrics import Metrics
from ga3c.runs.tally import Tally
from ga3c.service.agents import Agents
from ga3c.service.threads import Deadline, Gate
from ga3c.wire.queues import BatchQueue

ACTIONS = "actions.bin"  # the action file of a lockstep run


@dataclass(frozen=True)
class Kept:
    """The parts of a service whose state a resumed run needs. Used by the main thread only."""

    model: Model
    pacing: Pacing
    tally: Tally
    metrics: Metrics
    agents: Agents
    segments: BatchQueue[Segment]
    gate: Gate
    actions: ActionLog | None
    """Set in lockstep: all experience is saved, and a resumed run's agent replays these actions."""
    envs_per_agent: int
    replay_settings: Mapping[str, Any] | None
    """What a replay's content depends on; None if replays are not saved. All other experience
    starts afresh."""

    def read(
        self, timeout_s: float, experience: bool = True, hurry: Callable[[], bool] = lambda: False
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """A snapshot of arrays and counters, taken while no prediction or update is under way.

        On-policy experience is included only in lockstep; otherwise lanes start afresh. A replay is
        included if --save-replay is set.

        Args:
            experience: False leaves out all experience; weights and counters remain.
            hurry: whether to wait no longer, asked meanwhile.

        Returns:
            The content of a checkpoint; None if a prediction or an update does not end within
            `timeout_s`.
        """
        with self.gate.held(Deadline(timeout_s, hurry)) as still:
            if not still:
                return None
            arrays = self.model.read()
            state = {
                **self.tally.read(),
                "steps": self.pacing.steps,
                "counts": self.metrics.read(),
                "agents_started": self.agents.started,
            }
            if experience and (self.actions or self.replay_settings):
                arrays |= self.model.source.read()
                if isinstance(self.pacing, ReplayPacing):
                    state["pacing"] = self.pacing.read()
                    state["replay_settings"] = self.replay_settings
            if experience and self.actions:
                state["actions"] = self.actions.save()
            return arrays, state

    def restore(self, checkpoint: Checkpoint) -> str:
        """Restore what `read` returned, before the start. Raises ValueError if it does not fit.

        Returns what the user must know: a line if the saved replay cannot be continued, else "".
        """
        state = checkpoint.state
        self.model.restore(checkpoint.arrays)
        self.tally.restore(state)
        self.metrics.restore(state["counts"])
        self.pacing.begin_after(checkpoint.steps)
        if self.actions:
            self._restore_lockstep(self.actions, checkpoint)
            return ""
        self.agents.started = state["agents_started"]
        if not self.replay_settings or "pacing" not in state:
            return ""
        saved = state.get("replay_settings", {})  # checkpoints from before 2026-11-28 lack them
        for name, value in saved.items():
            if (now := self.replay_settings.get(name, value)) != value:
                # A session without --save-replay changed it, and wrote no checkpoint of its own.
                made = f"made with {name} {value}, which is now {now}"
                return f"fills a new replay, because the saved one was {made}"
        self._restore_replay(checkpoint)
        return ""

    def keep_actions(self, directory: Path) -> None:
        """In lockstep: keep the file of all actions in `directory`. Call before anything else."""
        if self.actions:
            self.actions.path = directory / ACTIONS

    def _restore_lockstep(self, actions: ActionLog, checkpoint: Checkpoint) -> None:
        arrays, state, book = checkpoint.arrays, checkpoint.state, self.model.source.book
        assert isinstance(book, SegmentBook)
        if "actions" not in (*state, *arrays):
            raise ValueError(
                "lockstep: the run did not use it, so it cannot be repeated: leave it out"
            )
        # Checkpoints from before 2026-11-22 hold the queue instead of the book's waiting segments.
        waiting = {"lanes/waiting": arrays["queue"]} if "queue" in arrays else {}
        self.model.source.restore({**arrays, **waiting})
        self.segments.fill(book.waiting, [book.t_max] * len(book.waiting))
        if "actions" in arrays:
            made = actions.adopt(arrays["actions"])
        else:
            made = actions.restore(state["actions"])
        self.agents.play_again(actions.path, made // self.envs_per_agent)

    def _restore_replay(self, checkpoint: Checkpoint) -> None:
        """Continue with the saved replay.

        Counts that the book also has are taken from the book, so that the two cannot disagree.
        """
        replay = self.model.source
        assert isinstance(replay, Replay) and isinstance(self.pacing, ReplayPacing)
        replay.restore(checkpoint.arrays)
        acted = replay.book.written_steps
        self.pacing.restore(
            {
                **checkpoint.state["pacing"],
                "before": checkpoint.steps - acted,
                "acted": acted,
                "flushed": int(replay.book.visible().heads.sum()),
            }
        )
        self.metrics.set(replay_steps=float(replay.drawable))
