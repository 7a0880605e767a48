"""What the page of slots over time shows: series as lines of a table, and as stacked bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from services.gateway.core import bars
from services.gateway.core.cost_page import SLOT_KINDS, hours

By = Literal["use", "tenant", "project", "job"]
Step = Literal["hour", "day"]

# How many days a reader can choose, and the step that is drawn for them.
RANGES: tuple[tuple[int, Step], ...] = ((2, "hour"), (7, "hour"), (30, "day"), (90, "day"))
# The cost service keeps hours for 35 days.
HOURS_SINCE = timedelta(days=35)
_LAST = ("others", "platform", "idle")


@dataclass(frozen=True, slots=True)
class Line:
    """A use or a holder, of all pools shown. `address`: the page about it, or ''."""

    name: str
    style: str
    slot_microseconds: Sequence[int]
    micro_usd: int
    address: str = ""

    @property
    def total(self) -> int:
        return sum(self.slot_microseconds)


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


def picture(starts_at: Sequence[datetime], found: Sequence[Line], step: Step) -> bars.Picture:
    """A bar for each hour or day, as high as its slots x time."""
    columns = []
    for number, moment in enumerate(starts_at):
        when = time_text(moment, step)
        columns.append(
            [
                bars.Part(
                    line.style,
                    line.slot_microseconds[number],
                    f"{when}: {hours(line.slot_microseconds[number])} slot hours {line.name}",
                )
                for line in found
            ]
        )
    return bars.stacked(columns)


def time_text(moment: datetime, step: Step) -> str:
    day = f"{moment:%b} {moment.day}"
    return day if step == "day" else f"{day}, {moment:%H}:00"


def has_hours(day: date, today: date) -> bool:
    return day >= today - HOURS_SINCE


def _address(by: By, holder: str | None) -> str:
    """The page about a holder."""
    if holder is None or by not in ("job", "project"):
        return ""
    return f"/jobs/{holder}" if by == "job" else f"/?project={quote(holder, safe='')}"
