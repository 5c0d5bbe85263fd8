"""When checkpoints are written: tests set the clock and the steps, and make the disk fail."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.environments import spaces
from ga3c.command.parse import parse
from ga3c.evaluation.evaluator import SEED
from ga3c.evaluation.protocols import whole_protocol
from ga3c.runs import checkpoints
from ga3c.runs.directory import RunDirectory
from ga3c.runs.tally import Episode, Tally
from ga3c.service.service import Service
from ga3c.service.threads import HURRIED_S, Deadline, Gate
from ga3c.service.wiring import build_service
from ga3c.settings.train import TrainConfig
from ga3c.training import evaluating
from ga3c.training.evaluating import Evaluations
from ga3c.training.interrupts import Interrupts
from ga3c.training.keeping import Keeper


class Run:
    """A run with a real keeper of its checkpoints and a stand-in for its service."""

    def __init__(self, path: Path, *given: str) -> None:
        self.now_s, self.steps, self.reads = 0.0, 0, 0
        self.said: list[str] = []
        self.episodes: list[Episode] = []
        self.place = path / "checkpoints"
        self.tally = Tally(lambda: self.now_s)
        self.tally.begin()
        pacing = SimpleNamespace(steps=0)
        kept = SimpleNamespace(read=self._read)
        config = SimpleNamespace(lockstep=False)
        known = {"tally": self.tally, "pacing": pacing, "kept": kept, "config": config}
        service: Any = SimpleNamespace(**known, model=SimpleNamespace(updates=0))
        directory: Any = SimpleNamespace(
            path=path, episodes=self.episodes.extend, check=lambda: None
        )
        self._keeper = Keeper(
            parse(list(given), TrainConfig, "test").checkpoints,
            service,
            directory,
            interrupts=Interrupts(),
            say=lambda text, to=None: self.said.append(text),
        )
        self._keeper.begin()

    def _read(
        self, timeout_s: float, hurry: Callable[[], bool]
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self.reads += 1
        return {"weights/x": np.ones(3)}, {"steps": self.steps}

    def at(self, seconds: float, steps: int = 0) -> None:
        """Move on to this time and step, and write a checkpoint if one is due."""
        self.now_s, self.steps = seconds, steps
        self._keeper.keep_if_due(steps)

    def break_disk(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.write_text("")  # a file in place of the folder: even root cannot write there

    @property
    def kept(self) -> list[int]:
        return [int(path.name) for path in checkpoints.kept(self.place)]


def test_a_failing_disk_is_reported_once_and_retried_every_10_s(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "--checkpoint-every-s", "60")
    run.break_disk()
    run.at(59.9)
    assert (run.reads, run.said) == (0, [])
    run.at(60.0)
    (failure,) = run.said
    assert failure.startswith("no checkpoint: [Errno")
    run.at(69.9)
    assert run.reads == 1, "it is not due yet"
    run.at(70.0)
    assert (run.reads, run.said) == (2, [failure])
    run.place.unlink()
    run.at(80.0, steps=7)
    assert run.said == [failure, "checkpoints are written again"]
    assert run.kept == [7]
    run.at(139.9)
    assert run.reads == 3, "the next one is due as after any other"
    run.break_disk()
    run.at(140.0)
    assert run.said[2:] == [failure], "it has failed anew"


def test_episodes_are_kept_even_where_the_checkpoint_cannot_be(tmp_path: Path) -> None:
    run = Run(tmp_path, "--checkpoint-every-s", "60")
    run.tally.episode(steps=5, score=1.0, length=5)
    run.break_disk()
    run.at(60.0)
    assert [episode.steps for episode in run.episodes] == [5]


def test_the_newest_checkpoints_and_the_milestones_are_kept(tmp_path: Path) -> None:
    given = ["--keep-checkpoints", "2", "--milestone-steps", "100"]
    run = Run(tmp_path, *given, "--checkpoint-every-steps", "30")
    for steps in (40, 60, 110, 160, 205, 235, 265, 295, 310):  # none is due at 60 and 310
        run.at(0.0, steps)
    assert run.kept == [110, 205, 265, 295]
    assert run.said == []


@pytest.mark.parametrize("gone", ["moved", "removed", "replaced"])
def test_nothing_is_written_in_place_of_a_directory_that_has_gone(
    tmp_path: Path, gone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a run would end well in a folder without settings, or write into another run."""
    path = tmp_path / "mine"
    directory = RunDirectory(TrainConfig(), path)
    directory.begin(0)
    run = Run(path)
    run._keeper._directory = directory
    run.at(400.0, 100)
    assert run.kept == [100]
    path.rename(tmp_path / "elsewhere")
    if gone == "removed":
        shutil.rmtree(tmp_path / "elsewhere")
    successor = RunDirectory(TrainConfig(), path) if gone == "replaced" else None
    if successor:
        successor.begin(0)
    run.at(800.0, 200)
    directory.evaluation({"steps": 1, "mean": 1.0, "protocol": {"name": "trained"}})
    directory.finish({"steps": 200})
    assert run.said == [f"no checkpoint: {path} has been moved or removed"]
    assert "has been moved or removed" in capsys.readouterr().err
    assert run.kept == [] and not (path / "result.json").exists()
    assert not (path / "evaluations.jsonl").exists()
    if successor:
        successor.finish({"steps": 0})
        assert (path / "result.json").exists()


def test_the_best_weights_are_kept_once_the_disk_has_room(tmp_path: Path) -> None:
    run, finished = Run(tmp_path), list[Any]()
    figures: dict[str, float] = {}
    evaluations = Evaluations.__new__(Evaluations)
    evaluations._evaluator = SimpleNamespace(
        take=lambda: [finished.pop() for _ in list(finished)], take_failures=list
    )  # type: ignore[assignment]
    metrics = SimpleNamespace(set=figures.update)
    evaluations._service = SimpleNamespace(metrics=metrics)  # type: ignore[assignment]
    directory = SimpleNamespace(path=tmp_path, evaluation=lambda entry: None)
    evaluations._directory = directory  # type: ignore[assignment]
    evaluations._keeper, evaluations._say = run._keeper, lambda text, to=None: None
    evaluations._record = evaluations._best = None
    evaluations._retry_s, evaluations._algorithm = 0.0, "a3c"

    def evaluated(mean: float, steps: int) -> None:
        protocol = whole_protocol({"name": "trained"}, "a3c")
        entry = {"mean": mean, "steps": steps, "protocol": protocol}
        finished.append((entry, {"weights/x": np.full(3, mean)}, {"steps": steps}))
        evaluations._note()

    def best() -> float:
        return float(checkpoints.newest(tmp_path / "best")[0].arrays["weights/x"][0])  # type: ignore[union-attr]

    evaluated(5.0, 100)
    assert figures == {"best_evaluation": 5.0}
    (tmp_path / "best").rename(tmp_path / "away")
    (tmp_path / "best").write_text("")  # nothing can be written there
    evaluated(20.0, 200)
    evaluated(6.0, 300)
    assert figures == {"best_evaluation": 5.0}, "what is on the disk"
    (tmp_path / "best").unlink()
    (tmp_path / "away").rename(tmp_path / "best")
    evaluations._note()
    assert best() == 5.0, "it is tried again only after a while"
    evaluations._retry_s = 0.0
    evaluations._note()
    assert best() == figures["best_evaluation"] == 20.0
    evaluated(10.0, 400)
    assert best() == figures["best_evaluation"] == 20.0


def test_an_evaluation_by_hand_is_none_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run makes the evaluation that is due, whatever `ga3c evaluate` played meanwhile."""
    protocol, last = {"name": "trained"}, list[float]()
    entries = ({"steps": 200, "seed": SEED}, {"steps": 260, "seed": 0})
    lines = [json.dumps({**entry, "protocol": protocol}) for entry in entries]
    (tmp_path / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(evaluating, "Evaluator", lambda config, spaces, steps: last.append(steps))
    directory: Any = SimpleNamespace(path=tmp_path)
    spaces: Any = SimpleNamespace()
    Evaluations(
        TrainConfig(), spaces, service=spaces, directory=directory, keeper=spaces, say=spaces
    )
    assert last == [200]


def test_a_second_signal_shortens_the_wait_for_an_evaluation() -> None:
    left: list[float] = []
    evaluations = Evaluations.__new__(Evaluations)
    evaluations._evaluator = SimpleNamespace(  # type: ignore[assignment]
        stop=lambda deadline: left.append(deadline.left_s()), take=list, take_failures=list
    )
    evaluations._best = None
    interrupts = Interrupts()
    interrupts.first.set()
    interrupts.second.set()
    assert not evaluations.end(interrupts, failed=False, timeout_s=600.0)
    assert 0 < left[0] <= HURRIED_S


def keeper_of(config: TrainConfig, service: Service, path: Path) -> tuple[Keeper, list[str]]:
    """A keeper of this service's checkpoints, and what it says to the user."""
    directory: Any = SimpleNamespace(path=path, episodes=lambda _: None, check=lambda: None)
    said: list[str] = []
    keeper = Keeper(
        config.checkpoints,
        service,
        directory,
        interrupts=Interrupts(),
        say=lambda text, to=None: said.append(text),
    )
    return keeper, said


def test_in_lockstep_checkpoint_and_stop_wait_for_a_batch_of_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes longer than either waits for an update, and a part of it cannot be kept."""
    monkeypatch.setattr("ga3c.training.keeping.READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr("ga3c.training.keeping.PATIENCE_S", 0.1)
    given = "--game tests.tiny:Corridor-v0 --algorithm a3c --lockstep --agents 1 --groups 1"
    given += " --scheduler off --envs-per-agent 4 --t-max 5 --training-batch-min 20"
    given += " --training-batch-max 20 --minibatch 5 --passes 10"
    config, updates = parse(given.split(), TrainConfig, "test"), 40
    service = build_service(config, spaces(config.environment))
    learn = service.model.learn

    def slow_learn(*inputs: Any, progress: float) -> Any:
        time.sleep(0.05)
        return learn(*inputs, progress=progress)

    def begin_a_batch() -> None:
        done = service.model.updates // updates
        while service.model.updates <= done * updates:
            time.sleep(0.01)

    monkeypatch.setattr(service.model, "learn", slow_learn)
    keeper, said = keeper_of(config, service, tmp_path)
    service.kept.keep_actions(tmp_path)
    service.start()
    try:
        begin_a_batch()
        assert keeper.keep() and said == []
        begin_a_batch()
        assert service.stop(1.0, keeper.hurry(stops=True), keeper.stop_s) == []
    finally:
        service.stop(1.0)
    assert keeper.keep()
    kept = [checkpoints.read(path) for path in checkpoints.kept(tmp_path / "checkpoints")]
    made = [each.arrays["counters"][1] for each in kept]
    assert made[1] > made[0] > 0
    assert [count % updates for count in made] == [0, 0]
    (line,) = said
    assert line.startswith("lockstep: waiting for all updates of a batch")


def test_a_stop_waits_for_the_first_update_which_is_being_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ga3c.training.keeping.PATIENCE_S", 0.1)
    given = "--game tests.tiny:Corridor-v0 --algorithm a3c --scheduler off"
    config = parse(given.split(), TrainConfig, "test")
    service = build_service(config, spaces(config.environment))
    learn, begun = service.model.learn, threading.Event()

    def slow_learn(*inputs: Any, progress: float) -> Any:
        begun.set()
        time.sleep(1.5)
        return learn(*inputs, progress=progress)

    monkeypatch.setattr(service.model, "learn", slow_learn)
    keeper, said = keeper_of(config, service, tmp_path)
    keeper.begin()
    service.start()
    try:
        assert begun.wait(60.0)
        assert service.stop(0.2, keeper.hurry(stops=True), keeper.stop_s) == []
    finally:
        service.stop(1.0)
    assert service.model.updates > 0
    assert keeper.stop_s == 0.0
    (line,) = said
    assert line.startswith("waiting for the first predictions and the first update")


def test_in_lockstep_a_second_signal_ends_the_wait_for_a_batch(tmp_path: Path) -> None:
    interrupts, gate = Interrupts(), Gate()
    with gate.passing():
        interrupts.second.set()
        with gate.held(Deadline(600.0, interrupts.second.is_set)) as still:
            assert not still
