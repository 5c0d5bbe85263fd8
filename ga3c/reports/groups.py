"""Groups runs that differ only in their seed, and names and colours each of them."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from ga3c.reports.history import History
from ga3c.runs.finding import short_names
from ga3c.runs.kept_config import NOT_LEARNED_FROM, learned_from
from ga3c.settings.train import TrainConfig

USUAL_COLOURS = 10  # of Matplotlib; then they repeat
SIMILAR = 0.9  # a change at such a share of another's steps is the same change in another seed
LEFT_OUT = (*NOT_LEARNED_FROM, "info_keys")
FIRST_TOLD = ("algorithm", "network", "pacing")  # the most telling settings, in this order
LAST_TOLD = ("learning_rate_end", "schedule_steps", "learns_from", "training_wait_s")  # say little


class Look(NamedTuple):
    """How one run is distinguished from the others, in all plots of a picture."""

    label: str
    colour: str


Looks = Mapping[Path, Look]


class Change(NamedTuple):
    """A setting that a run was resumed with."""

    words: str  # discount 0.9
    steps: int  # made before


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    game: str
    differs: str  # the settings that differ from the other groups of the game, if any
    runs: list[History]

    @property
    def name(self) -> str:
        """The game, and the settings that differ."""
        return f"{self.game} ({self.differs})" if self.differs else self.game


def grouped(runs: Sequence[History]) -> list[Group]:
    """Runs grouped by game and settings, in the order they were given.

    Runs that were resumed with the same changes are together if that was after similar steps.
    """
    by_settings: dict[tuple[str, str, tuple[str, ...]], list[list[History]]] = {}
    for run in runs:
        words = tuple(change.words for change in _changes(run))
        parts = by_settings.setdefault((run.game, json.dumps(settings(run.config)), words), [])
        part = next((part for part in parts if _changed_alike(part[0], run)), [])
        if not part:
            parts.append(part)
        part.append(run)
    groups = []
    for (game, text, _), parts in by_settings.items():
        others = [other for name, other, _ in by_settings if name == game]
        rest = [json.loads(other) for other in others if other != text]
        own = list(_distinguishing(json.loads(text), rest))
        unchanged = "no setting changed" if len(others) > 1 else ""  # unlike in the others
        for part in parts:
            groups.append(Group(game, ", ".join((*own, *_when_changed(part))) or unchanged, part))
    return groups


def _changes(run: History) -> list[Change]:
    return [
        Change(_in_words(setting, now), resume.steps)
        for resume in run.resumes
        for name, (_, now) in resume.changed.items()
        if (setting := name.rpartition(".")[2]) not in LEFT_OUT
    ]


def _changed_alike(one: History, other: History) -> bool:
    """Whether two runs with the same changes were changed after similar numbers of steps."""
    changes = zip(_changes(one), _changes(other), strict=True)
    pairs = [(change.steps, same.steps) for change, same in changes]
    return all(min(pair) >= SIMILAR * max(pair) for pair in pairs)


def _when_changed(runs: Sequence[History]) -> Iterator[str]:
    """What the settings of these seeds were changed to while they ran, and when, in words."""
    for (words, steps), *others in zip(*map(_changes, runs), strict=True):
        about = "about " if any(change.steps != steps for change in others) else ""
        yield f"{words} from {about}{steps:,} steps on"


def _distinguishing(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A few settings, in words, that distinguish `own` from each of `others`, chosen greedily."""
    left = list(others)
    while left:
        counts = {name: sum(other[name] != own[name] for other in left) for name in own}
        first = [name for name in FIRST_TOLD if counts[name]]
        told = [name for name in own if name not in LAST_TOLD and counts[name]]
        name = first[0] if first else max(told or own, key=lambda each: counts[each])
        yield _in_words(name, own[name])
        left = [other for other in left if other[name] == own[name]]


def _in_words(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if name == "algorithm":  # its value speaks for itself
        return str(value)
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:.10g}" if isinstance(value, float) else f"{words} {value}"


def settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that learning depends on, without the sections and settings of `LEFT_OUT`."""
    flat = {name.rpartition(".")[2]: value for name, value in learned_from(config).items()}
    module, colon, _ = flat.pop("game").rpartition(":")
    with contextlib.suppress(ValueError):  # the game may no longer exist
        flat["sticky_actions"] = None if colon else config.environment.stickiness
    return {n: v for n, v in {**flat, "module": module}.items() if n not in LEFT_OUT}


def looks_of(runs: Sequence[History]) -> dict[Path, Look]:
    """The look of each run. Seeds of one group are shades of a colour, if there are others."""
    groups, looks = grouped(runs), {}
    several_games = len({group.game for group in groups}) > 1
    colours = _colours(len(groups) if len(groups) > 1 else len(runs))
    for number, group in enumerate(groups):
        for each, run in enumerate(group.runs):
            seed = f"seed {run.config.run.seed}" if len(group.runs) > 1 or len(groups) == 1 else ""
            words = [group.game if several_games else "", group.differs, seed]
            white = 0.7 * each / len(group.runs)
            shade = colours[number] + (1 - colours[number]) * white
            colour = to_hex(shade if len(groups) > 1 else colours[each])
            looks[run.path] = Look(", ".join(filter(None, words)), colour)
    labels = [look.label for look in looks.values()]
    alike = [path for path, look in looks.items() if labels.count(look.label) > 1]
    for path, name in short_names(alike).items():  # two folders may each have a seed-0
        looks[path] = Look(f"{looks[path].label}, {name}", looks[path].colour)
    return looks


def _colours(count: int) -> np.ndarray:
    """Distinct colours [count, 3]: the usual ones or, if these are too few, those of a rainbow."""
    if count <= USUAL_COLOURS:
        return np.array([to_rgb(f"C{number}") for number in range(count)])
    return colormaps["turbo"](np.linspace(0, 1, count))[:, :3]
