"""Measures several counts in turn within one run of the service.

Slow drifts, such as in a machine's speed, distort the comparison less than in separate runs.
"""

from collections.abc import Iterator, Sequence

from agents.environments import Spaces
from ga3c.command.parse import parse
from ga3c.measuring.serving import TICK_S, Measured, learning, measure_window, tend
from ga3c.settings.checks import WrongInput
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig


def ga3c_options(game: str, counts: Sequence[int], most: Sequence[int]) -> list[str]:
    """Command-line options for a3c that start with `counts` and leave room for `most`."""
    words = ["--game", game, "--algorithm", "a3c"]
    for name, count, largest in zip(Counts._fields, counts, most, strict=True):
        words += [f"--{name}", str(count), f"--max-{name}", str(largest)]
    return words


def with_room(game: str, most: Sequence[int]) -> TrainConfig:
    """Settings of a3c for `measure_in_turn`: one of each role, and room for the largest counts.

    Raises WrongInput if the settings do not allow `most`.
    """
    try:
        return parse(ga3c_options(game, (1, 1, 1), most), TrainConfig, "ga3c benchmark")
    except ValueError as error:
        raise WrongInput(str(error)) from error


def of_turn(counts: Sequence[Counts], turn: int) -> Sequence[Counts]:
    """`counts`, reversed in odd turns, because a machine's speed also drifts within a turn."""
    return counts[:: -1 if turn % 2 else 1]


def measure_in_turn(
    config: TrainConfig, found: Spaces, counts: Sequence[Counts], window_s: float
) -> Iterator[tuple[Counts, Measured]]:
    """One window for each of `counts`, each after a third of a window to settle.

    Raises what `measure_service` raises.
    """
    with learning(config, found) as service:
        tend(service, window_s)
        for each in counts:
            service.resize(each)
            while not service.plays():
                tend(service, TICK_S)
            tend(service, window_s / 3)
            yield each, measure_window(service, window_s)
