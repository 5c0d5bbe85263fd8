"""TensorBoard and trackers get each run once, with its settings, its figures and how it ended."""

import errno
import importlib.util
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import metadata

from agents.extras import missing
from ga3c.runs import records, tracking
from ga3c.runs.directory import RunDirectory
from ga3c.runs.events import Events
from ga3c.runs.finding import find_run, runs_in
from ga3c.runs.tally import Episode
from ga3c.runs.tracking import TRACKERS, Tracking
from ga3c.runs.tracking import tracking as track
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig
from tests.commands import refused

RESULT = {"ended": "900 steps done", "steps": 900, "score_mean_100": 17.5}


def figures(steps: int) -> dict[str, Any]:
    return {"steps": steps, "pps": 100.0, "tps": 80.0, "updates_per_s": 2.0, "td_error": math.nan}


def kept_run(
    path: Path, steps: tuple[int, ...], tracker: Any = None, ends: bool = True
) -> str | None:
    """Write a run with some progress lines, or resume the one at `path`, without a service.

    Returns where the run is tracked.
    """
    resumed = path if path.exists() else None
    run = replace(TrainConfig().run, track=tracker, steps=steps[-1], resume=resumed)
    directory = RunDirectory(replace(TrainConfig(), run=run), path)
    place = directory.begin(steps[0])
    directory.episodes([Episode(1.0, steps[0], 3.5, 7, 0.0, True)])
    for each in steps:
        directory.metrics(figures(each))
    directory.evaluation({"steps": steps[-1], "protocol": {"name": "paper"}, "mean": 12.5})
    if ends:
        directory.finish(RESULT)
    directory.close()
    return place


# TensorBoard


def test_tensorboard_lists_each_run_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        kept_run(tmp_path / name, (100, 200))
    seen = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    assert set(seen.Runs()) == {"one", "two"}
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to("one")  # as earlier versions did
    seen = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    assert set(seen.Runs()) == {"one", "two", "latest"}, "a link would be a run"
    assert find_run(tmp_path / "latest", tmp_path) == tmp_path / "one"
    kept_run(tmp_path / "three", (100, 200))
    assert not (tmp_path / "latest").is_symlink()
    for given in (Path("latest"), tmp_path / "latest"):
        assert find_run(given, tmp_path) == tmp_path / "three"
    assert len(runs_in(tmp_path)) == 3
    four = tmp_path / "scores" / "four"
    kept_run(four, (100, 200))
    assert find_run(Path("latest"), tmp_path) == four == runs_in(tmp_path)[0]
    (tmp_path / "latest").write_text("gone\n")
    assert find_run(Path("latest"), tmp_path) == four


def test_tensorboards_hyperparameters_are_the_settings_beside_the_final_score(
    tmp_path: Path,
) -> None:
    kept_run(tmp_path / "mine", (300, 600))
    seen = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    content = seen.PluginRunToTagToContent("hparams")["mine"][metadata.SESSION_START_INFO_TAG]
    hparams = metadata.parse_session_start_info_plugin_data(content).hparams
    assert hparams["environment.game"].string_value == "Pong"
    assert hparams["service.t_max"].number_value == 20
    assert hparams["run.json"].bool_value is False
    assert hparams["run.score"].string_value == "None"
    events = EventAccumulator(str(tmp_path / "mine")).Reload()
    last = events.Scalars("charts/episodic_return_mean_100")[-1]
    assert (last.step, last.value) == (900, 17.5), "of the result, not of the last progress line"
    assert [each.value for each in events.Scalars("perf/TPS")] == [80.0, 80.0]


def test_tensorboard_shows_all_of_a_run_that_was_resumed_from_its_end(tmp_path: Path) -> None:
    kept_run(tmp_path / "mine", (300, 900))
    kept_run(tmp_path / "mine", (900, 1200), ends=False)
    seen = EventAccumulator(str(tmp_path / "mine")).Reload()
    assert [each.step for each in seen.Scalars("eval/paper")] == [900, 1200]
    assert 17.5 in [each.value for each in seen.Scalars("charts/episodic_return_mean_100")]


def test_tensorboard_shows_a_session_that_began_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_run(tmp_path / "mine", (100, 200), ends=False)
    before_ns = time.time_ns() - 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: before_ns)
    kept_run(tmp_path / "mine", (300, 400), ends=False)
    seen = EventAccumulator(str(tmp_path / "mine")).Reload()
    assert [each.step for each in seen.Scalars("perf/TPS")] == [100, 200, 300, 400]


# Trackers


class Recorder:
    """A tracker that records all calls; the method that `fails_at` names fails."""

    id = "17"
    place = "here"

    def __init__(self, fails_at: str = "") -> None:
        self.told: list[tuple[Any, ...]] = []
        self._fails_at = fails_at

    def _note(self, method: str, *arguments: Any) -> None:
        self.told.append((method, *arguments))
        if method == self._fails_at:
            raise ConnectionError(f"call {len(self.told)} failed\nand more")

    def settings(self, values: Mapping[str, Any]) -> None:
        self._note("settings", values)

    def scalars(self, scalars: Mapping[str, float], steps: int) -> None:
        self._note("scalars", scalars, steps)

    def finish(self, ended: str) -> None:
        self._note("finish", ended)


def test_a_tracker_gets_settings_figures_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setitem(TRACKERS, "wandb", lambda path, known: recorder)
    place = kept_run(tmp_path / "mine", (100, 200), "wandb")
    assert place == "tracked by wandb: here"
    settings, first, second, evaluation, result, end = recorder.told
    assert settings[1]["environment"]["game"] == "Pong"
    assert json.dumps(settings[1]), "plain values"
    assert first[1]["charts/episodic_return"] == 3.5, "of the newest episode"
    assert (first[1]["perf/TPS"], first[1]["perf/updates_per_s"], first[2]) == (80.0, 2.0, 100)
    assert "losses/td_error" not in first[1], "not finite"
    assert "charts/episodic_return" not in second[1], "no other episode has ended"
    assert evaluation[1:] == ({"eval/paper": 12.5}, 200)
    assert result[1:] == ({"charts/episodic_return_mean_100": 17.5}, 900)
    assert end == ("finish", "900 steps done")
    recorder.told.clear()
    kept_run(tmp_path / "other", (100, 200), "wandb", ends=False)
    assert recorder.told[-1] == ("finish", "failed")


@pytest.mark.parametrize("method", ["settings", "scalars", "finish"])
def test_a_tracker_that_fails_is_reported_once_and_ends_nothing(
    method: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    recorder = Recorder(method)
    monkeypatch.setitem(TRACKERS, "mlflow", lambda path, known: recorder)
    kept_run(tmp_path / "mine", (100, 200, 300), "mlflow")
    (line,) = capfd.readouterr().err.splitlines()
    assert "mine: not written: tracking by mlflow: ConnectionError: call " in line
    assert len((tmp_path / "mine" / "metrics.jsonl").read_text().splitlines()) == 3
    assert json.loads((tmp_path / "mine" / "result.json").read_text()) == RESULT
    assert len(recorder.told) == 7, "it may recover"
    assert recorder.told[-1] == ("finish", "900 steps done")


def test_a_tracker_gets_everything_if_the_disk_is_full_or_the_last_figures_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, fails in enumerate((True, False)):
        recorder = Recorder()
        monkeypatch.setitem(TRACKERS, "wandb", lambda path, known, it=recorder: it)
        with monkeypatch.context() as patched:
            if fails:
                full = MagicMock(side_effect=OSError(errno.ENOSPC, "no space left"))
                patched.setattr(Events, "_write_scalars", full)
                patched.setattr(records, "append", full)
            else:
                recorder.scalars = lambda scalars, steps, it=recorder: (  # type: ignore[method-assign]
                    it._note("scalars", steps) if steps < 900 else 1 / 0
                )
            kept_run(tmp_path / f"run-{number}", (100, 200), "wandb")
        assert [each[-1] for each in recorder.told if each[0] == "scalars"][:2] == [100, 200]
        assert recorder.told[-1] == ("finish", "900 steps done")


def test_a_tracker_that_stands_still_delays_the_end_by_its_limit_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking, "CLOSE_S", 0.1)
    monkeypatch.setattr(tracking, "MOST_WAITING", 2)
    release = tracking.threading.Event()
    recorder = Recorder()
    recorder.settings = lambda values: release.wait(20.0)  # type: ignore[assignment,method-assign]
    still = Tracking("wandb", recorder)
    still.settings({})
    with pytest.raises(OSError, match="tracking by wandb: it has not taken 2 points"):
        for steps in range(4):
            still.scalars({"x": 1.0}, steps)
    still.close("900 steps done")
    still.close("failed")
    assert still._thread.is_alive()
    release.set()
    still._thread.join(20.0)
    assert recorder.told[-1] == ("finish", "900 steps done")


def test_a_damaged_id_of_a_tracked_run_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / tracking.KEPT).write_text("{")
    with pytest.raises(WrongInput, match=r"track wandb: JSONDecodeError.*--track None"):
        track("wandb", tmp_path)


def test_a_run_that_cannot_be_tracked_does_not_begin_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, known: str | None) -> tracking.Tracker:
        raise PermissionError("no API key\nlog in")

    monkeypatch.setitem(TRACKERS, "wandb", refuse)
    with pytest.raises(ValueError, match="track wandb: PermissionError: no API key; --track None"):
        kept_run(tmp_path / "runs" / "mine", (100,), "wandb")
    assert list((tmp_path / "runs").iterdir()) == []
    kept_run(tmp_path / "mine", (100, 200))
    with pytest.raises(ValueError, match="track wandb"):
        kept_run(tmp_path / "mine", (200, 300), "wandb")
    assert (tmp_path / "mine" / "config.json").exists(), "a run that was there stays"


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    line = refused("train", "--track", name, "--runs-dir", str(tmp_path / "runs"))
    assert line == f"ga3c: track {name}: {missing(name, name)}"
    assert not (tmp_path / "runs").exists()
    assert "track wanbd" in refused("train", "--track", "wanbd")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=missing(name, name))


@needs("wandb")
def test_wandb_keeps_a_run_offline_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "mine"
    place = kept_run(run, (100, 200), "wandb")
    known = json.loads((run / tracking.KEPT).read_text())["wandb"]
    (first,) = (run / "wandb").glob(f"offline-run-*-{known}/*.wandb")
    assert place == f"tracked by wandb: wandb sync {first.parent} sends it"
    for words in (b"perf/TPS", b"charts/episodic_return", b"eval/paper", b"envs_per_agent"):
        assert words in first.read_bytes(), words
    kept_run(run, (200, 300), "wandb")
    assert json.loads((run / tracking.KEPT).read_text())["wandb"] == known
    assert {file.name for file in (run / "wandb").glob("*/*.wandb")} == {f"run-{known}.wandb"}


@needs("wandb")
def test_wandb_without_an_api_key_does_not_ask_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    importlib.import_module("wandb").teardown()  # makes it read its variables again
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ValueError, match="no API key: run wandb login first"):
        track("wandb", tmp_path)


@needs("mlflow")
def test_mlflow_keeps_a_run_in_a_local_store_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for steps in ((100, 200), (200, 300)):  # the second resumes the run with other --steps
        place = kept_run(tmp_path / "runs" / "mine", steps, "mlflow")
    assert place and f"sqlite:///{tmp_path}/runs/mlflow.db" in place
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/runs/mlflow.db")
    experiment = client.get_experiment_by_name("ga3c")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["environment.game"] == "Pong"
    assert (run.data.params["run.steps"], run.data.tags["run.steps"]) == ("200", "300")
    assert run.data.tags["ended"] == "900 steps done"
    rates = client.get_metric_history(run.info.run_id, "perf/TPS")
    assert [(each.step, each.value) for each in rates] == [
        *((100, 80.0), (200, 80.0)),
        *((200, 80.0), (300, 80.0)),
    ]
    assert run.data.metrics["charts/episodic_return_mean_100"] == 17.5
    assert not [path for path in Path.cwd().glob("ml*") if path.is_dir()], "nothing beside it"
