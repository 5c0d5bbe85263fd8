"""The saved state of a service: read at one moment, and restored before the next start."""

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
from ga3c.service.threads import Gate
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
    keeps_replay: bool
    """Whether a replay is saved too. All other experience starts afresh."""

    def read(
        self, timeout_s: float, experience: bool = True
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """A snapshot of arrays and counters, taken while no prediction or update is under way.

        On-policy experience is included only in lockstep; otherwise lanes start afresh. A replay is
        included if --save-replay is set.

        Args:
            experience: False leaves out all experience; weights and counters remain.

        Returns:
            The content of a checkpoint; None if a prediction or an update does not end within
            `timeout_s`.
        """
        with self.gate.held(timeout_s) as still:
            arrays = self.model.read(timeout_s) if still else {}
            if not arrays:
                return None
            state = {
                **self.tally.read(),
                "steps": self.pacing.steps,
                "counts": self.metrics.read(),
                "agents_started": self.agents.started,
            }
            if experience and (self.actions or self.keeps_replay):
                arrays |= self.model.source.read()
                if isinstance(self.pacing, ReplayPacing):
                    state["pacing"] = self.pacing.read()
            if experience and self.actions:
                state["actions"] = self.actions.save()
            return arrays, state

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore what `read` returned, before the start. Raises ValueError if it does not fit."""
        state = checkpoint.state
        self.model.restore(checkpoint.arrays)
        self.tally.restore(state)
        self.metrics.restore(state["counts"])
        self.pacing.begin_after(checkpoint.steps)
        if self.actions:
            self._restore_lockstep(self.actions, checkpoint)
            return
        self.agents.started = state["agents_started"]
        if self.keeps_replay and "pacing" in state:
            self._restore_replay(checkpoint)

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
