"""A video shows exactly the game that is played."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest

from agents.environments import EnvironmentConfig, Environments
from agents.pictures import WITHOUT_SCREEN, NoPictures, Pictures
from ga3c.evaluation.canvas import (
    FAINT,
    GREY,
    HEIGHT,
    MARGIN,
    NUMBERS,
    PAPER,
    SCALE,
    Canvas,
    Moment,
)
from ga3c.evaluation.play import _file_name
from ga3c.runs.finding import newest_run
from ga3c.runs.tally import short_score
from tests.commands import (
    BEGIN_S,
    STOP_S,
    Command,
    assert_nothing_is_left,
    children,
    ended,
    refused,
    wait_for,
)


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_pictures_show_the_game_that_is_played(game: str) -> None:
    """A grey, scaled-down picture nearly equals the agent's frame, but not with another seed."""
    config = EnvironmentConfig(game=game, sticky_actions=0.25, noop_max=30)
    environments, random = Environments(config, 1), np.random.default_rng(0)
    with closing(Pictures(config)) as pictures, closing(Pictures(config)) as others:
        frames = [environments.reset(5).frames[0]]
        shown, astray = [pictures.reset(5)], [others.reset(6)]
        for _ in range(300):
            actions = environments.spaces.actions.random(random, 1)
            frames.append(environments.step(actions).frames[0])
            shown.append(pictures.step(actions))
            astray.append(others.step(actions))
    differences = [
        np.mean([(np.abs(_small(p) - frame) > 50).mean() for p, frame in zip(some, frames)])
        for some in (shown, astray)
    ]  # the mean share of pixels whose grey differs by more than 50
    assert shown[0].shape == (210, 160, 3)
    assert differences[0] < 0.001
    assert differences[1] > 3 * differences[0] + 0.001
    assert len(pictures.actions) == environments.spaces.actions.count
    assert pictures.per_second == 15.0


def _small(picture: np.ndarray) -> np.ndarray:
    from PIL import Image

    grey = Image.fromarray(picture).convert("L").resize((84, 84), Image.Resampling.BOX)
    return np.asarray(grey, np.float32)


@pytest.mark.parametrize("game", ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "LunarLander-v3"])
def test_a_game_of_vectors_can_be_watched_without_a_screen(
    game: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two copies with the same seed and actions show the same pictures. FrozenLake may not move."""
    for name in (*WITHOUT_SCREEN, "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    several = [Pictures(EnvironmentConfig(game=game)) for _ in range(2)]
    first = [pictures.reset(3) for pictures in several]
    for _ in range(10):
        last = [pictures.step(np.zeros(1, np.int32)) for pictures in several]
    for pictures in several:
        pictures.close()
    assert first[0].dtype == np.uint8
    assert first[0].ndim == 3
    np.testing.assert_array_equal(*first)
    np.testing.assert_array_equal(*last)
    assert game == "FrozenLake-v1" or (first[0] != last[0]).any()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("score", "shown"), [(0.4, "0.4"), (0.97, "0.97"), (12345.0, "12,345")])
def test_scores_keep_the_digits_that_count(score: float, shown: str) -> None:
    """Many games pay less than one point."""
    assert short_score(score) == shown
    canvas, texts, picture = (
        Canvas("mine", ["noop"]),
        list[str](),
        np.zeros((210, 160, 3), np.uint8),
    )
    canvas._text = lambda draw, at, text, *rest: texts.append(text)  # type: ignore[method-assign]
    canvas.draw(Moment(picture, score, 7, 0.5, np.ones(1), 0, False))
    assert shown in texts


def test_a_game_that_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(NoPictures, match=r"Corridor-v0 cannot be rendered: .*take render_mode"):
        Pictures(EnvironmentConfig(game="tests.tiny:Corridor-v0")).reset(0)
    assert children() == set()


def test_the_likeliest_action_has_the_longest_bar() -> None:
    canvas = Canvas("title", ["noop", "fire", "left"])
    picture = np.zeros((210, 160, 3), np.uint8)
    drawn = canvas.draw(Moment(picture, 3.0, 7, 0.5, np.array([0.1, 0.7, 0.2]), 1, False))
    assert drawn.shape[0] == HEIGHT
    assert drawn.shape[0] % 2 == drawn.shape[1] % 2 == 0
    panel = drawn[:, HEIGHT * 4 // 3 :].astype(int)
    orange = (panel[..., 0] > 240) & (panel[..., 1] > 110) & (panel[..., 2] < 60)
    grey = (np.abs(panel - [170, 175, 180]).sum(axis=-1) < 4) & (np.arange(HEIGHT) > 245)[:, None]
    assert orange.sum() > 2 * grey.sum() > 0


def panels(values: list[float], **parts: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parts of the last picture: the scale of the curve, the curve, and the rows of actions."""
    canvas, picture = Canvas("title", ["noop", "fire", "left"]), np.zeros((210, 160, 3), np.uint8)
    probabilities = parts.pop("probabilities", np.array([0.1, 0.7, 0.2]))
    action = parts.pop("action", 1)
    for value in values:
        moment = Moment(picture, 3.0, 7, value, probabilities, action, False, **parts)
        drawn = canvas.draw(moment)
    panel = drawn[:, HEIGHT * 4 // 3 + MARGIN :]
    return panel[112:216, : SCALE - 2], panel[118:209, SCALE:], panel[245:]


def test_the_curve_of_values_has_a_scale_and_a_line_at_zero() -> None:
    scale, curve, _ = panels([0.0, 1.0, 0.5])
    larger, same, _ = panels([0.0, 10.0, 5.0])
    assert np.array_equal(curve, same)
    assert not np.array_equal(scale, larger)
    crossing = panels([-1.0, 1.0, 0.0])[1]
    assert (crossing == FAINT).all(axis=-1).sum(axis=1)[1:-1].max() > 100
    assert (curve == FAINT).all(axis=-1).sum(axis=1)[1:-1].max() < 10


def test_bars_of_continuous_actions_have_a_mark_at_zero() -> None:
    marked, plain = (panels([0.0], action=action)[2] for action in (None, 1))
    middle = (NUMBERS + 8 + marked.shape[1] - MARGIN) // 2
    is_grey = (marked[:, middle - 2 : middle + 3] == GREY).all(axis=-1)
    assert is_grey.sum(axis=0).max() > 100
    assert not (plain[:, middle - 2 : middle + 3] == GREY).all(axis=-1).any()


def test_probabilities_and_q_values_are_shown_in_numbers_and_bars() -> None:
    _, _, rows = panels([0.0])
    close = panels([0.0], probabilities=np.array([0.104, 0.698, 0.198]))[2]
    numbers, bars = slice(NUMBERS - 40, NUMBERS + 1), slice(NUMBERS + 8, None)
    assert np.array_equal(rows[:, numbers], close[:, numbers]), "the same in two digits"
    of_q = [panels([0.0], action_values=np.array(q))[2] for q in ([1.0, 3.0, 2.0], [4.0, 6.0, 5.0])]
    assert np.array_equal(of_q[0][:, bars], of_q[1][:, bars]), "the same within their range"
    assert not np.array_equal(of_q[0][:, numbers], of_q[1][:, numbers])
    assert not np.array_equal(of_q[0][:, numbers], rows[:, numbers])
    assert not np.array_equal(rows[:, numbers], np.broadcast_to(PAPER, rows[:, numbers].shape))


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_play_writes_a_video(pong_run: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"game{suffix}"
    done = ended("play", str(pong_run), "--out", str(out), "--max-seconds", "3")
    assert done.returncode == 0, done.stderr
    assert f"video in {out}" in done.stdout
    frames = imageio.imread(out, index=None if suffix == ".mp4" else ...)
    assert len(frames) == (3 * 15 + 15 if suffix == ".mp4" else 3 * 15)  # a gif merges equal ones
    assert frames.shape[1:3] == (HEIGHT, HEIGHT * 4 // 3 + 340)
    assert np.abs(np.diff(frames[::10].astype(int), axis=0)).max() > 50, "something moves"


def test_an_interrupted_video_is_not_kept(
    pong_run: Path, tmp_path: Path, command: Callable[..., Command]
) -> None:
    playing = command("play", str(pong_run), "--out", str(tmp_path / "game.mp4"))
    playing.until(lambda: (tmp_path / ".partial-game.mp4").exists())
    playing.interrupt()
    assert playing.wait(STOP_S) == 130
    assert not list(tmp_path.glob("*.mp4"))


def test_videos_by_a_changed_protocol_do_not_replace_others(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "mine")
    for given in ([], ["--noop-max", "1"], ["--noop-max", "25"]):
        done = ended("play", str(run), "--max-seconds", "1", *given)
        assert done.returncode == 0, done.stderr
    names = sorted(file.name.partition("-")[2] for file in (run / "video").iterdir())
    assert names == ["trained-0.mp4", "trained-noop_max=1-0.mp4", "trained-noop_max=25-0.mp4"]


def test_a_run_that_takes_no_video_is_refused_in_one_line(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "mine")
    (run / "video").touch()
    said = refused("play", str(run))
    assert re.search(r"the video \S+ could not be written: give --out FILE", said)


def test_a_file_name_is_safe_and_differs_where_what_it_names_does() -> None:
    assert _file_name("trained", "map_name=8x8") == "trained-map_name=8x8"
    odd = [f"map_name={text}" for text in ("a/b", "a b", "ä" * 300, "ä" * 301, "x" * 200)]
    names = {_file_name("trained", each) for each in odd}
    assert len(names) == len(odd)
    assert all(re.fullmatch(r"trained-[\w=.-]+", name, re.ASCII) for name in names)
    assert max(map(len, names)) < 120


def test_what_is_played_is_the_first_game_of_an_evaluation(pong_run: Path, tmp_path: Path) -> None:
    """`play` and `evaluate` cut the game at the same step, with the same score."""
    run = shutil.copytree(pong_run, tmp_path / "mine")
    cap = ["--step-cap", "200", "--seed", "5"]
    shown = ended("play", str(run), "--out", str(tmp_path / "game.mp4"), *cap)
    assert shown.returncode == 0, shown.stderr
    played = ended("evaluate", str(run), "--episodes", "2", "--json", *cap)
    assert played.returncode == 0, played.stderr
    result = json.loads(played.stdout.splitlines()[-1])
    assert (result["games_cut"], result["lengths"]) == (2, [200, 200])
    assert "2 cut short by a length limit" in played.stdout
    score = f"score {result['scores'][0]:,.0f} after 200 steps, cut there by --step-cap"
    assert score in shown.stdout


def test_the_newest_run_of_a_game_is_found_by_each_of_its_names(pong_run: Path) -> None:
    for name in ("Pong", "pong", "ALE/Pong-v5", "PongNoFrameskip-v4"):
        assert newest_run(name, pong_run.parent).resolve() == pong_run.resolve()


@pytest.mark.slow
def test_play_takes_the_newest_run_of_a_game(pong_run: Path, tmp_path: Path) -> None:
    given = ["--runs-dir", str(pong_run.parent), "--max-seconds", "1", "--out"]
    for game in ([], ["--game", "PongNoFrameskip-v4"]):
        done = ended("play", *game, *given, str(tmp_path / "x.gif"))
        assert done.returncode == 0, done.stderr
        said, score = done.stdout.splitlines()
        assert said.startswith(f"{pong_run}: Pong after ") and said.endswith("; protocol trained")
        assert score.startswith("score ")
        assert len(imageio.imread(tmp_path / "x.gif", index=None)) > 5


def test_wrong_use_of_play_is_refused(tmp_path: Path) -> None:
    said = refused("play", "--game", "Breakout", "--out", "x.txt")
    assert "must end in .mp4 or .gif" in said
    said = refused("play", "--out", "x.gif", "--window")
    assert "out x.gif with window: no file would be written" in said
    said = refused("play", "--game", "Surround", "--runs-dir", str(tmp_path))
    assert "no run of Surround" in said


def test_a_window_without_a_display_fails_in_one_line_and_leaves_nothing(
    pong_run: Path,
    tmp_path: Path,
    command: Callable[..., Command],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By then, the process that renders the game has already started."""
    monkeypatch.delenv("DISPLAY", raising=False)
    run = shutil.copytree(pong_run, tmp_path / "mine")
    playing = command("play", str(run), "--window")
    assert playing.wait(BEGIN_S) == 2
    (line,) = playing.err.splitlines()
    assert line.startswith("ga3c: no window can be shown: ")
    assert line.endswith("; leave out --window")
    wait_for(lambda: not playing.survivors(), STOP_S)  # multiprocessing's tracker ends a bit later
    assert_nothing_is_left(playing)
    assert not (run / "video").exists()


def test_the_death_of_the_drawing_process_is_reported() -> None:
    with closing(Pictures(EnvironmentConfig("CartPole-v1"))) as pictures:
        pictures.reset(0)
        pictures._process.kill()
        pictures._process.join()
        with pytest.raises(NoPictures, match="exited with code -9"):
            pictures.step(np.zeros(1, np.int32))
