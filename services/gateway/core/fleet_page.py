"""What the page of slots over time shows: series as lines of a table."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Literal
from urllib.parse import quote

from services.gateway.core.bars import Line, Step
from services.gateway.core.cost_page import SLOT_KINDS

By = Literal["use", "tenant", "project", "job"]

# How many days a reader can choose, and the step that is drawn for them.
RANGES: tuple[tuple[int, Step], ...] = ((2, "hour"), (7, "hour"), (30, "day"), (90, "day"))
# The cost service keeps hours for 35 days.
HOURS_SINCE = timedelta(days=35)
_LAST = ("others", "platform", "idle")


def lines(series: Sequence[Mapping[str, Any]], by: By) -> list[Line]:
    """From the bottom of the bars to their top: uses in their order, or the largest holder first;
    above them others, platform and idle."""
    sums: dict[tuple[str, str | None], tuple[list[int], int, str | None]] = {}
    for each in series:
        key = (each["kind"], each["holder"])
        times, cost, _ = sums.get(key, ([0] * len(each["slot_microseconds"]), 0, None))
        added = [a + b for a, b in zip(times, each["slot_microseconds"], strict=True)]
        sums[key] = (added, cost + sum(each["micro_usd"]), each["name"])
    order = SLOT_KINDS if by == "use" else ("held", *_LAST)
    ordered = sorted(
        sums.items(), key=lambda item: (order.index(item[0][0]), -sum(item[1][0]), item[0][1] or "")
    )
    found = []
    for number, ((kind, holder), (times, cost, name)) in enumerate(ordered, 1):
        if kind != "held":
            found.append(Line("others" if kind == "others" else kind, f"use-{kind}", times, cost))
        else:
            shown = name or holder or f"no {by}"
            found.append(Line(shown, f"holder-{number}", times, cost, _address(by, holder)))
    return found


def has_hours(day: date, today: date) -> bool:
    return day >= today - HOURS_SINCE


def _address(by: By, holder: str | None) -> str:
    """The page about a holder."""
    if holder is None or by not in ("job", "project"):
        return ""
    return f"/jobs/{holder}" if by == "job" else f"/?project={quote(holder, safe='')}"
