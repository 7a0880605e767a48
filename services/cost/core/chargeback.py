"""The lines of a chargeback report: who had what of each pool, day by day.

The lines of a pool's day add up to its cost exactly, as the shares of `pools.py` do. They are
worked out one after the other: the lines of the table are never all in memory.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from services.cost.core.phases import Amount
from services.cost.core.pools import IDLE, PoolTime


class Capacity(StrEnum):
    """`UNKNOWN`: of stored checkpoints, and of idle slots where it is not known which were held."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Time and money of one kind and capacity; what a line is not by is empty.

    `tenant_id` is empty for what nobody pays: `platform` and `idle`.
    """

    of: PoolTime
    kind: str
    capacity: Capacity
    tenant_id: str = ""
    project: str = ""
    study_id: str = ""
    job_id: str = ""
    job_name: str = ""


class Report:
    """Adds what is not in the table yet to its lines, and ends each day with what is idle.

    `whole`: what the nodes offered. `live`: what is held now or was released lately.
    """

    def __init__(
        self, whole: Mapping[tuple[PoolTime, Capacity], Amount], live: Mapping[Line, Amount]
    ) -> None:
        self._left: dict[date, dict[PoolTime, _ByCapacity]] = defaultdict(dict)
        for (of, capacity), amount in whole.items():
            self._of(of)[capacity].add(amount.slot_microseconds, amount.micro_usd)
        self._live: dict[date, dict[Line, Amount]] = defaultdict(dict)
        for line, amount in live.items():
            self._live[line.of.day][line] = amount
        self._days = sorted({*self._left, *self._live})

    def add(self, line: Line, amount: Amount) -> Iterator[tuple[Line, Amount]]:
        """The next line of the table; their days only grow."""
        yield from self._end_days(line.of.day)
        more = self._live[line.of.day].pop(line, Amount())
        more.add(amount.slot_microseconds, amount.micro_usd)
        self._take(line, more)
        yield line, more

    def end(self) -> Iterator[tuple[Line, Amount]]:
        """What follows the last line of the table."""
        yield from self._end_days(date.max)

    def _end_days(self, before: date) -> Iterator[tuple[Line, Amount]]:
        while self._days and self._days[0] < before:
            day = self._days.pop(0)
            for line, amount in sorted(
                self._live.pop(day, {}).items(), key=lambda item: _order(item[0])
            ):
                self._take(line, amount)
                yield line, amount
            for of, left in sorted(self._left.pop(day, {}).items(), key=lambda item: item[0]):
                yield from _idle(of, left)

    def _take(self, line: Line, amount: Amount) -> None:
        left = self._of(line.of)[line.capacity]
        left.add(-amount.slot_microseconds, -amount.micro_usd)

    def _of(self, of: PoolTime) -> "_ByCapacity":
        return self._left[of.day].setdefault(of, defaultdict(Amount))


_ByCapacity = dict[Capacity, Amount]


def _idle(of: PoolTime, left: _ByCapacity) -> Iterator[tuple[Line, Amount]]:
    """What nobody held; one line where more was held of a capacity than offered, because a node may
    change from one to the other."""
    if any(amount.slot_microseconds < 0 for amount in left.values()):
        rest = Amount()
        for amount in left.values():
            rest.add(amount.slot_microseconds, amount.micro_usd)
        left = {Capacity.UNKNOWN: rest}
    for capacity, amount in sorted(left.items()):
        if idle := amount.idle:
            yield Line(of, IDLE, capacity), idle


def _order(line: Line) -> tuple[PoolTime, str, str, str, str]:
    return line.of, line.tenant_id, line.job_id, line.kind, line.capacity
