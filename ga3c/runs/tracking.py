"""Sends a run's figures to Weights & Biases or to MLflow (--track), besides its own files."""

import importlib
import importlib.util
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from agents.extras import missing
from ga3c.runs.durable import rewrite_whole
from ga3c.runs.kept_config import leaves
from ga3c.settings.checks import WrongInput

KEPT = "tracking.json"  # in the run's directory: the id that each tracker gave the run
PROJECT = "ga3c"  # the project or experiment, unless the tracker's own variables name another
MOST_WAITING = 10_000  # maximum points queued for a tracker; later ones are dropped
CLOSE_S = 30.0  # longest wait for a tracker at the end of a run
MLFLOW_BATCH = 100  # the most settings that MLflow accepts at once


class Tracker(Protocol):
    """The interface of a tracker. Exceptions that it raises are reported, and the run goes on.

    It is created in the main thread; after that, a single thread uses it.
    """

    id: str  # of the run, for when it is resumed
    place: str  # tells the user where to find it

    def settings(self, values: Mapping[str, Any]) -> None:
        """Record the run's settings, as in config.json."""

    def scalars(self, scalars: Mapping[str, float], steps: int) -> None:
        """Record figures at a number of environment steps."""

    def finish(self, ended: str) -> None:
        """Record why the run `ended` ("failed" marks a failure), and send everything."""


class WeightsAndBiases:
    """A wandb run. wandb's own variables (WANDB_MODE, WANDB_PROJECT, ...) apply."""

    def __init__(self, path: Path, known: str | None) -> None:
        wandb = importlib.import_module("wandb")
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("no API key: run wandb login first, or set WANDB_MODE=offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=path.name,
            dir=str(path),
            id=known,
            resume="allow" if known else None,
            reinit="create_new",  # leaves the calling program's own run alone
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="steps")
        self.id = str(self._run.id)
        offline = self._run.offline
        self.place = f"wandb sync {self._run.sync_dir} sends it" if offline else self._run.url

    def settings(self, values: Mapping[str, Any]) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def scalars(self, scalars: Mapping[str, float], steps: int) -> None:
        self._run.log({"steps": steps, **scalars})

    def finish(self, ended: str) -> None:
        self._run.summary["ended"] = ended
        self._run.finish(exit_code=int(ended == "failed"))


class MLflow:
    """An MLflow run, in the store of MLFLOW_TRACKING_URI or in mlflow.db beside the runs."""

    def __init__(self, path: Path, known: str | None) -> None:
        mlflow = importlib.import_module("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        runs, is_set = path.parent.absolute(), mlflow.is_tracking_uri_set()
        store = mlflow.get_tracking_uri() if is_set else f"sqlite:///{runs / 'mlflow.db'}"
        self._artifacts = None if is_set else (runs / "mlartifacts").as_uri()
        self._client = mlflow.MlflowClient(tracking_uri=store)
        if known:
            self.id = known
            self._client.update_run(known, status="RUNNING")
        else:
            new = self._client.create_run(self._experiment(), run_name=path.name)
            self.id = str(new.info.run_id)
        self.place = f"mlflow ui --backend-store-uri {store} shows it"

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        if found:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=self._artifacts))

    def settings(self, values: Mapping[str, Any]) -> None:
        """Log parameters; those that a resume changed become tags, as parameters are immutable."""
        before = self._client.get_run(self.id).data.params
        texts = {name: str(value) for name, value in leaves(values)}
        new = [self._entities.Param(*each) for each in texts.items() if each[0] not in before]
        for first in range(0, len(new), MLFLOW_BATCH):
            self._client.log_batch(self.id, params=new[first : first + MLFLOW_BATCH])
        for name, text in texts.items():
            if before.get(name, text) != text:
                self._client.set_tag(self.id, name, text)

    def scalars(self, scalars: Mapping[str, float], steps: int) -> None:
        now_ms = int(1000 * time.time())
        metrics = [self._entities.Metric(tag, v, now_ms, steps) for tag, v in scalars.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def finish(self, ended: str) -> None:
        self._client.set_tag(self.id, "ended", ended)
        status = {"failed": "FAILED", "interrupted": "KILLED"}.get(ended, "FINISHED")
        self._client.set_terminated(self.id, status)


TRACKERS: dict[str, Callable[[Path, str | None], Tracker]] = {
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


def check_tracker(name: str | None) -> None:
    """Raises ValueError if the package of the tracker is missing."""
    found = importlib.util.find_spec(name) if name else None
    if name and (found is None or found.origin is None):  # a folder called wandb is not the package
        raise ValueError(f"track {name}: {missing(name, name)}")


def tracking(name: str, path: Path) -> "Tracking":
    """Track the run in `path`, or continue tracking it. Raises WrongInput if that fails."""
    kept: dict[str, str] = {}
    try:
        if (path / KEPT).exists():
            kept = dict(json.loads((path / KEPT).read_bytes()))
        tracker = TRACKERS[name](path, kept.get(name))
    except Exception as error:
        raise WrongInput(
            f"track {name}: {_in_a_line(error)}; --track None starts the run without it"
        ) from error
    rewrite_whole(path / KEPT, json.dumps({**kept, name: tracker.id}) + "\n")
    return Tracking(name, tracker)


class Tracking:
    """Feeds a tracker from a thread of its own, so that a slow or failing one ends no run.

    The first failure is raised as an OSError by the next call. Later calls are still tried.
    """

    def __init__(self, name: str, tracker: Tracker) -> None:
        self.place = f"tracked by {name}: {tracker.place}"
        self._name = name
        self._tracker = tracker
        self._work: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
        self._failure: str | None = None
        self._is_reported = self._is_closed = False
        self._thread = threading.Thread(target=self._send, name="tracking", daemon=True)
        self._thread.start()

    def settings(self, values: Mapping[str, Any]) -> None:
        """Record the run's settings."""
        self._hand_over("settings", values)

    def scalars(self, scalars: Mapping[str, float], steps: int) -> None:
        """Record figures."""
        self._hand_over("scalars", scalars, steps)

    def close(self, ended: str) -> None:
        """Send everything and end the thread. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._work.put(("finish", (ended,)))
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._failure = f"it did not take everything within {CLOSE_S:g} s"
        self._report()

    def _hand_over(self, method: str, *arguments: Any) -> None:
        if self._work.qsize() < MOST_WAITING:
            self._work.put((method, arguments))
        else:
            self._failure = f"it has not taken {MOST_WAITING} points yet; further ones are dropped"
        self._report()

    def _report(self) -> None:
        if self._failure and not self._is_reported:
            self._is_reported = True
            raise OSError(f"tracking by {self._name}: {self._failure}")

    def _send(self) -> None:
        method = ""
        while method != "finish":
            method, arguments = self._work.get()
            try:
                getattr(self._tracker, method)(*arguments)
            except Exception as error:  # of the tracker's package, or of the network
                self._failure = _in_a_line(error)


def _in_a_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
