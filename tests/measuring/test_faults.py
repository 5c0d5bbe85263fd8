"""`ga3c benchmark faults`: some cases, run as users run them, and checks that cases can fail."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import faults
from benchmarks.faults import CASES, Config, attempt
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.nodes import NoNamespaces
from benchmarks.faults.soak import drift_and_noise
from benchmarks.faults.watched import PROGRESS_S, Reading, Watched
from benchmarks.reliability import MARKERS, PAGE, markdown
from tests.commands import ended, refused

SOME = ("service/predictor raises", "service/trainer raises", "refused/one directory")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_some_cases_pass_as_users_run_them(tmp_path: Path) -> None:
    arguments = ["benchmark", "faults", "--quick", "--out-dir", str(tmp_path), "--json", "--cases"]
    done = ended(*arguments, *SOME, timeout_s=600.0)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads(done.stdout.splitlines()[-1])["cases"]
    assert set(cases) == set(SOME)
    for name, seen in cases.items():
        assert seen["passed"] and seen["injected"] >= 1 and seen["left"] == 0, name
    again = ended(*arguments, *SOME)
    assert again.returncode == 0
    assert json.loads(again.stdout.splitlines()[-1])["cases"] == cases, "not kept, but tried again"


def test_a_steady_run_has_one_speed_however_old_its_newest_figures_are(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.readings = [Reading(each * PROGRESS_S, 1000 * each, 0) for each in range(41)]
    last_s = run.readings[-1].at_s
    for late_s in np.linspace(0.0, 1.9 * PROGRESS_S, 20):
        now_s = last_s + float(late_s)
        assert run.pps(now_s - 2.0, now_s) == pytest.approx(1000 / PROGRESS_S)
    stopped_s = last_s + 20.0
    assert run.pps(stopped_s - 2.0, stopped_s) == 0.0
    assert run.pps(last_s - 10.0, last_s + 10.0) == pytest.approx(500 / PROGRESS_S)


def tried(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> int | None:
    monkeypatch.setattr(faults, "CASES", {case.name: case})
    return faults.run(Config(tmp_path, quick=True, cases=(case.name,)))


def not_injected(bench: Bench) -> Seen:
    return Seen()


def not_held(bench: Bench) -> Seen:
    seen = Seen(injected=1)
    seen.expect(False, "the sky fell")
    return seen


def raising(bench: Bench) -> Seen:
    raise RuntimeError("no more")


def without_right(bench: Bench) -> Seen:
    raise NoNamespaces("no right")


@pytest.mark.parametrize(
    ("attempted", "said"),
    [
        (not_injected, ""),
        (not_held, "the sky fell"),
        (raising, "RuntimeError: no more"),
        (without_right, "FAILED: no right"),
    ],
)
def test_a_case_fails_if_it_injects_nothing_or_something_does_not_hold(
    attempted: object,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = Case("group/fault", "it holds", attempted)  # type: ignore[arg-type]
    assert tried(tmp_path, case, monkeypatch) == 1
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "1 of 1" in each)
    assert "group/fault: FAILED" in line and said in line


def test_a_case_has_a_place_of_its_own_that_is_removed(tmp_path: Path) -> None:
    places = []

    def attempted(bench: Bench) -> Seen:
        places.append(bench.directory)
        assert not [each for each in bench.directory.iterdir() if each.name != "owner.lock"]
        (bench.directory / "left").touch()
        return Seen(injected=1)

    figures = attempt(Case("a/b", "it holds", attempted), Config(tmp_path))
    assert figures["passed"] and figures["promise"] == "it holds"
    assert not places[0].exists()


def test_a_soak_of_another_length_is_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []

    def attempted(bench: Bench) -> Seen:
        lengths.append(bench.soak_s)
        return Seen(injected=1)

    (soak,) = faults.SOAKS
    cases = {name: Case(name, "it holds", attempted) for name in (soak, "a/b")}
    monkeypatch.setattr(faults, "CASES", cases)
    for hours in (1.0, 1.0, 2.0):
        assert faults.run(Config(tmp_path, soak_hours=hours)) == 0
    assert sorted(lengths) == [3600, 3600, 7200], "a/b once, the soak twice"


def test_every_case_has_a_name_and_a_promise_of_its_own() -> None:
    assert len(CASES) == sum(len(group.CASES) for group in faults.GROUPS)
    for name, case in CASES.items():
        group, _, fault = name.partition("/")
        assert group and fault and case.promise and not case.promise.endswith("."), name


def test_the_cases_are_listed(tmp_path: Path) -> None:
    done = ended("benchmark", "faults", "--out-dir", str(tmp_path / "out"), "--cases", "list")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == list(CASES)
    quick = [case.name for case in Config(tmp_path, quick=True).chosen]
    assert [line.split(":")[0] for line in lines if "not in the quick form" not in line] == quick
    assert {name.partition("/")[0] for name in quick} == {
        name.partition("/")[0] for name in CASES
    } - {"soak"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cases", "agnets"], "cases agnets: must be all, list, a group (agents,"),
        (["--soak-hours", "0"], "soak_hours 0: must be above 0"),
    ],
)
def test_wrong_use_is_refused_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    assert said in refused("benchmark", "faults", "--out-dir", str(tmp_path), *arguments)


def test_memory_that_grows_is_told_from_noise() -> None:
    rng = np.random.default_rng(0)
    noise_mb = rng.normal(700.0, 5.0, 4000)
    drift, deviation = drift_and_noise(noise_mb)
    assert abs(drift) < 3 * deviation
    leaking = noise_mb + np.linspace(0.0, 20.0, 4000)
    drift, deviation = drift_and_noise(leaking)
    assert drift > 3 * deviation and drift == pytest.approx(20.0, abs=2.0)


def test_the_page_has_a_row_for_each_case_that_was_kept() -> None:
    shown = PAGE.read_text().split(MARKERS[0])[1].split(MARKERS[1])[0]
    assert "cases passed" in shown
    for name in CASES:
        assert f"| {name.partition('/')[2]} |" in shown, name


def test_a_table_says_what_did_not_hold() -> None:
    good = {**Seen(injected=3, pps_before=1234.5).figures(), "promise": "it holds"}
    bad = Seen(injected=1, problems=["a | b"], descriptors=2, threads=-1, left=3).figures()
    bad["promise"] = "it holds"
    rows = markdown({"a/one": good, "a/two": bad, "b/three": good}).splitlines()
    assert rows.count("### A") == rows.count("### B") == 1
    assert any("| one | it holds | 3 | 1,234 |" in row and row.endswith("passed |") for row in rows)
    assert any(
        "| two |" in row and row.endswith("| a / b; 2 more descriptors; 3 left |") for row in rows
    )
