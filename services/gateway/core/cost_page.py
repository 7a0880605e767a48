"""What the page of costs shows: the lines of a month's chargeback report, summed, and a picture."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from services.gateway.core import bars
from services.gateway.core.bars import Line, Picture

# From the bottom of a bar to its top.
SLOT_KINDS = ("productive", "checkpointing", "starting", "lost", "platform", "idle")
KINDS = (*SLOT_KINDS, "storage")
MAX_ROWS = 200


@dataclass(slots=True)
class Costs:
    """`days`: slots x microseconds by kind. `owners`: micro-dollars by kind, of who had them;
    '' is nobody, None is what belongs to no project (or study)."""

    days: dict[date, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    owners: dict[str | None, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, line: Mapping[str, Any], by: str) -> None:
        if line["kind"] != "storage":
            self.days[date.fromisoformat(line["day"])][line["kind"]] += line["slot_microseconds"]
        self.owners[_owner(line, by)][line["kind"]] += line["micro_usd"]

    def of_kind(self, kind: str) -> int:
        """Micro-dollars of everybody."""
        return sum(amounts[kind] for amounts in self.owners.values())


@dataclass(frozen=True, slots=True)
class Owner:
    name: str | None
    by_kind: Mapping[str, int]
    micro_usd: int


def owners(costs: Costs) -> tuple[list[Owner], int]:
    """The most expensive first, at most 200; and how many others there are."""
    found = [Owner(name, dict(kinds), kinds.total()) for name, kinds in costs.owners.items()]
    found.sort(key=lambda owner: (-owner.micro_usd, owner.name or ""))
    return found[:MAX_ROWS], max(0, len(found) - MAX_ROWS)


def picture(costs: Costs, first: date, last: date, now: datetime) -> Picture:
    """A bar for each day, as high as the slots that it had on average."""
    midnight = datetime(first.year, first.month, first.day, tzinfo=UTC)
    days = [midnight + timedelta(days=number) for number in range((last - first).days + 1)]
    times = [costs.days.get(day.date(), Counter()) for day in days]
    lines = [Line(kind, f"use-{kind}", [of[kind] for of in times]) for kind in SLOT_KINDS]
    return bars.picture(days, lines, "day", now)


def month_of(text: str | None, today: date) -> date:
    """The first day of '2026-02', or of today's month."""
    return date.fromisoformat(f"{text}-01") if text else today.replace(day=1)


def last_of(month: date) -> date:
    return (month + timedelta(days=32)).replace(day=1) - timedelta(days=1)


def _owner(line: Mapping[str, Any], by: str) -> str | None:
    if line["tenant_id"] is None:
        return ""
    if line["tenant_id"] == "others":
        return "other tenants"
    name: str | None = line["project" if by == "project" else f"{by}_id"]
    return name
