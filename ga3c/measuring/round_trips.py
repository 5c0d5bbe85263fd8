"""What the distance to agents on other machines costs, as their own steps show.

An agent reports with each step how long it waited for actions and how long it stepped. If it had to
wait, it took them as soon as they came, so the rest of the time between an answer and the next step
is the round trip. While one group's answer is on its way, the other groups play, so G groups hide
the round trip if G - 1 of their steps take as long: G >= 1 + round trip / step of a group.
"""

import math
from collections.abc import Iterator
from typing import Any

from ga3c.runs.metrics import Window
from ga3c.settings.service import ServiceConfig

FULL = 0.9  # busy share from which on the frontend is reported as the limit
LEAST_TRIPS = 20
MOST_GROUPS = 16  # beyond this, groups are made longer instead: each costs messages
MB = 1e6
MOST_WAITING = 0.9  # of agents' time, for computing a gain


def way(window: Window) -> dict[str, float]:
    """Figures of the window: of the frontend, and of the distance to agents on other machines."""
    found = {"frontend_busy_share": max(1.0 - window.rate("frontend_waiting_s"), 0.0)}
    if window.count("far_messages"):
        found["mb_per_s"] = window.rate("far_bytes") / MB
        found["bytes_a_message"] = window.mean("far_bytes", "far_messages")
        found["group_step_ms"] = 1e3 * window.mean("agents_busy_s", "messages")
        if window.count("trips") >= LEAST_TRIPS:
            found["round_trip_ms"] = 1e3 * window.mean("trips_s", "trips")
    return found


def groups_needed(figures: dict[str, Any]) -> int:
    """The fewest groups that hide the round trip; 1 if agents never wait for it."""
    trip_ms = figures.get("round_trip_ms", 0.0)
    return 1 + math.ceil(trip_ms / max(figures["group_step_ms"], 1e-9))


def more_groups(
    figures: dict[str, Any], service: ServiceConfig
) -> Iterator[tuple[dict[str, int], float, str]]:
    """Settings that hide the round trip, the gain to expect, and why; none if it is hidden."""
    if "round_trip_ms" not in figures or (needed := groups_needed(figures)) <= service.groups:
        return
    groups = min(needed, max(MOST_GROUPS, service.groups))
    longer = math.ceil((needed - 1) / (groups - 1))  # factor on the environments of a group
    envs = groups * longer * service.envs_per_group
    waiting = min(figures["agents_waiting_share"], MOST_WAITING)
    # What the other groups' steps leave of the round trip, beside the steps of all groups.
    trip, step = figures["round_trip_ms"], max(figures["group_step_ms"], 1e-9)
    left = (trip - (service.groups - 1) * step) / (service.groups * step)
    because = f"agents wait {waiting:.0%} of their time; {groups} such groups hide the round trip"
    yield {"groups": groups, "envs_per_agent": envs}, min(waiting / (1 - waiting), left), because


def bandwidth_mb(packed: dict[str, Any], whole: dict[str, Any]) -> float | None:
    """MB/s to other machines, from the round trips of small and of large messages.

    None if the large ones do not take longer, or agents did not have to wait for them.
    """
    trips_ms = [each.get("round_trip_ms") for each in (packed, whole)]
    if None in trips_ms or trips_ms[1] <= trips_ms[0]:  # type: ignore[operator]
        return None
    more = whole["bytes_a_message"] - packed["bytes_a_message"]
    return more / MB / (1e-3 * (trips_ms[1] - trips_ms[0]))  # type: ignore[operator]


def described(figures: dict[str, Any], service: ServiceConfig) -> Iterator[str]:
    """Sentences about the frontend and the distance to other machines."""
    if figures["frontend_busy_share"] >= FULL:
        yield (
            f"the frontend is busy {figures['frontend_busy_share']:.0%} of its time: more agents "
            "make this service no faster, larger groups do (docs/scale.md)"
        )
    if "mb_per_s" not in figures:
        return
    size = service.envs_per_group
    yield (
        f"other machines send {figures['mb_per_s']:,.1f} MB/s, "
        f"{figures['bytes_a_message'] / size:,.0f} bytes a step"
    )
    if "round_trip_ms" not in figures:
        yield f"their agents do not wait: {service.groups} groups hide the round trip"
        return
    needed = groups_needed(figures)
    yield (
        f"round trip to other machines {figures['round_trip_ms']:.1f} ms; a group's step takes "
        f"{figures['group_step_ms']:.1f} ms, so {needed} groups of {size} environments hide it, "
        f"and there are {service.groups}"
    )
