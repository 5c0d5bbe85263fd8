"""A run's figures for TensorBoard and trackers, by steps, under commonly used tags."""

import errno
import io
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo
from tensorboard.plugins.text import metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from ga3c.runs.kept_config import leaves
from ga3c.runs.tally import INFO, Episode
from ga3c.runs.tracking import Tracking

TAGS = {
    "score_mean_100": "charts/episodic_return_mean_100",
    "length_mean_100": "charts/episodic_length_mean_100",
    "success_rate_100": "charts/success_rate_100",
    "reward_per_step": "charts/reward_per_step",
    "pps": "charts/SPS",
    "policy_loss": "losses/policy_loss",
    "value_loss": "losses/value_loss",
    "loss": "losses/loss",
    "entropy": "losses/entropy",
    "approx_kl": "losses/approx_kl",
    "clip_fraction": "losses/clipfrac",
    "gradient_norm": "losses/gradient_norm",
    "value": "losses/value",
    "td_error": "losses/td_error",
    "tps": "perf/TPS",
    "updates_per_s": "perf/updates_per_s",
    "prediction_batch": "perf/prediction_batch",
    "policy_lag": "stats/policy_lag",
    "policy_lag_max": "stats/policy_lag_max",
    "prediction_queue": "stats/prediction_queue",
    "training_queue": "stats/training_queue",
    "replay_steps": "stats/replay_steps",
    "replay_ratio": "stats/replay_ratio",
    "steps_per_update": "stats/steps_per_update",
    "epsilon": "stats/epsilon",
    "noise": "stats/noise",
    "episodes": "stats/episodes",
    "agents": "sched/agents",
    "predictors": "sched/predictors",
    "trainers": "sched/trainers",
}


PART_BYTES = 16 << 20  # of event files; each further part takes twice as long to fill


class Events:
    """Writes a TensorBoard event file into `directory`; owned by one thread.

    A tracker gets the same, except that it gets only the newest episode, with the next figures:
    small environments finish thousands per second. Beyond the first PART_BYTES, TensorBoard
    also gets no more, and only every second line of figures, every fourth beyond twice that, etc.

    Raises OSError, for example if the disk is full.
    """

    def __init__(self, directory: Path, steps: int, tracking: Tracking | None = None) -> None:
        """`steps`: TensorBoard hides what earlier files recorded after this step."""
        self._tracking = tracking
        self._newest: dict[str, float] = {}  # scalars of the newest episode
        self._lines = 0  # of figures
        before = directory.glob("events.out.*")
        self._parts_bytes = sum(file.stat().st_size for file in before)
        # TensorBoard reads files in name order: this one is last even if the clock was set back.
        known = [file.name.split(".")[3] for file in directory.glob("events.out.tfevents.*")]
        number = max(time.time_ns() // 10**6, *(int(n) + 1 for n in ["0", *known] if n.isdecimal()))
        name = f"events.out.tfevents.{number:013}.{os.getpid()}"
        self._file = open(directory / name, "wb", buffering=0)  # noqa: SIM115
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=steps + 1, session_log=SessionLog(status=SessionLog.START)))

    def settings(self, values: Mapping[str, Any]) -> None:
        """Add the run's settings, as in config.json, as text and as hyperparameters."""
        named = dict(leaves(values))
        rows = [f"| {key} | {value} |" for key, value in named.items()]
        text = "\n".join(["| setting | value |", "| --- | --- |", *rows])
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        shown = metadata.create_summary_metadata(display_name="settings", description="")
        value = Summary.Value(tag="settings/text_summary", metadata=shown, tensor=tensor)
        self._write(Event(step=0, summary=Summary(value=[value, _hyperparameters(named)])))
        if self._tracking:
            self._tracking.settings(values)

    def episode(self, episode: Episode) -> None:
        """Add a finished episode that counts for the run's score."""
        if not episode.scored:
            return
        values = {"return": episode.score, "length": episode.length}
        self._newest = {f"charts/episodic_{name}": v for name, v in values.items()}
        if self._rarity == 1:
            self._write_scalars(self._newest, episode.steps)

    def figures(self, values: Mapping[str, Any]) -> None:
        """Add the figures of one progress line."""
        given = {name: v for name, v in values.items() if v is not None}
        scalars = {tag: v for name, v in given.items() if (tag := _tag(name))}
        scalars["perf/PPS"] = values["pps"]
        self._lines += 1
        self._add(scalars, values["steps"], left_out=self._lines % self._rarity != 0)

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """Add an evaluation's mean score."""
        self._add({f"eval/{entry['protocol']['name']}": entry["mean"]}, entry["steps"])

    def result(self, values: Mapping[str, Any]) -> None:
        """Add the result's score as the last point of its curve, and end the tracking."""
        try:
            if (score := values.get("score_mean_100")) is not None:
                self._add({TAGS["score_mean_100"]: score}, values["steps"])
        finally:
            if self._tracking:
                self._tracking.close(values.get("ended", "failed"))

    def close(self) -> None:
        """Close the file. A run without a result counts as failed."""
        self._file.close()
        if self._tracking:
            self._tracking.close("failed")

    @property
    def _rarity(self) -> int:
        """One in this many lines of figures is written."""
        return 2 ** (self._parts_bytes // PART_BYTES)

    def _add(self, scalars: Mapping[str, float], steps: int, left_out: bool = False) -> None:
        """Write scalars, and hand them to the tracker with those of the newest episode."""
        both, self._newest = {**self._newest, **scalars}, {}
        try:
            if not left_out:
                self._write_scalars(both if self._rarity > 1 else scalars, steps)
        finally:  # even if the disk is full
            if self._tracking:
                self._tracking.scalars(_finite(both), steps)

    def _write_scalars(self, scalars: Mapping[str, float], steps: int) -> None:
        values = [Summary.Value(tag=tag, simple_value=v) for tag, v in _finite(scalars).items()]
        self._write(Event(step=steps, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        """Append a record, whole or not at all: no reader gets past a truncated one."""
        event.wall_time = time.time()
        record, end = io.BytesIO(), self._file.tell()
        RecordWriter(record).write(event.SerializeToString())
        written = 0
        try:
            written = self._file.write(record.getbuffer())
        finally:
            if written < record.tell():
                self._file.truncate(end)
                self._file.seek(end)
        if written < record.tell():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        self._parts_bytes += written


def _tag(name: str) -> str | None:
    """The tag of a figure; None if it has none."""
    return name if name.startswith(INFO) else TAGS.get(name)


def _finite(scalars: Mapping[str, float]) -> dict[str, float]:
    return {tag: float(value) for tag, value in scalars.items() if math.isfinite(value)}


def _hyperparameters(settings: Mapping[str, Any]) -> Any:
    """A row of TensorBoard's HPARAMS tab; its own functions for this need TensorFlow."""
    start = SessionStartInfo(start_time_secs=time.time())
    for name, value in settings.items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            start.hparams[name].number_value = value
        else:
            start.hparams[name].string_value = str(value)
    shown = hparams.create_summary_metadata(HParamsPluginData(session_start_info=start))
    tag = hparams.SESSION_START_INFO_TAG
    return Summary.Value(tag=tag, metadata=shown, tensor=hparams.NULL_TENSOR)
