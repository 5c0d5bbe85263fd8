"""Orders to the environments of `benchmarks.faulty_games`, and what comes of them."""

from pathlib import Path

from agents.worker import Task
from benchmarks.faults.watched import Watched

NAMED_S = 30.0  # the log names a fault within this
ANSWER_S = 10.0  # an environment obeys within this


class Orders:
    """The directory in which orders are given."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "orders"
        self._path.mkdir()

    def game(self, name: str) -> tuple[str, ...]:
        """The arguments of `ga3c train` for `BreakableCart` or `BreakablePong`."""
        game = f"benchmarks.faulty_games:{name}-v0"
        return ("--game", game, "--env-args", f"orders={self._path}")

    def always(self, order: str) -> None:
        """Make every environment break, again and again."""
        (self._path / f"always-{order}").touch()

    def once(self, run: Watched, order: str, words: str) -> int:
        """Make one environment break. Returns 1 once the log names the fault by `words`."""
        before = run.log.count(words)
        (self._path / order).touch()
        run.until(lambda: run.log.count(words) > before, NAMED_S)
        return 1

    def obeyed(self, run: Watched, order: str) -> int:
        """Make one environment break. Returns 1 once it has begun to obey."""
        file = self._path / order
        file.touch()
        run.until(lambda: not file.exists(), ANSWER_S)
        return 1

    def task(self, run: Watched) -> tuple[int, Task]:
        """The process id of an agent, and its task."""
        (self._path / "tells").touch()
        run.until(lambda: any(self._told()), ANSWER_S)
        told = self._told()[0]
        return int(told.suffix[1:]), Task.from_json(told.read_text())

    def _told(self) -> list[Path]:
        return list(self._path.parent.glob("told.[0-9]*"))
