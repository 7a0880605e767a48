"""Who had the slots of a pool over time, or what they were used for, step by step. Pure.

In: what nodes offered, and what was held, by step. Out: a series for each use or holder; with what
was idle they add up to what was offered, in time and money.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from services.cost.core.phases import Amount, Phase
from services.cost.core.pools import IDLE, OTHERS, UNOFFERED, PoolTime

# The holders with most; what the others had is one series.
MAX_HOLDERS = 8
HELD = "held"
_PLATFORM = Phase.PLATFORM.value
_KINDS = (HELD, OTHERS, *(phase.value for phase in Phase), IDLE)


class By(StrEnum):
    USE = "use"
    TENANT = "tenant"
    PROJECT = "project"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Of:
    """What a series is of. `kind`: a use; or `held` by `holder` ('' where a job has no project),
    or by `others`, which are those with less and other tenants; `platform`; `idle`."""

    pool: str
    device_type: str
    kind: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who held slots of a pool; `tenant_id` is '' where that is not told."""

    pool: str
    device_type: str
    tenant_id: str
    holder: str


# By the begin of the step, and the use (or `unoffered`).
Points = dict[tuple[datetime, str], Amount]
Series = Mapping[datetime, Amount]


@dataclass(frozen=True, slots=True)
class View:
    """`holders`: those that have a series of their own."""

    by: By
    tenant_id: str
    holders: Collection[str] = ()

    def of(self, who: Holder, kind: str) -> Of:
        """The series that this belongs to, as the tenant sees it."""
        if self.by is By.USE or kind in (UNOFFERED, _PLATFORM):
            return Of(who.pool, who.device_type, kind)
        if who.tenant_id != self.tenant_id or who.holder not in self.holders:
            return Of(who.pool, who.device_type, OTHERS)
        return Of(who.pool, who.device_type, HELD, who.holder)


def series(
    whole: Mapping[PoolTime, Amount], held: Iterable[tuple[Holder, Points]], view: View
) -> list[tuple[Of, Series]]:
    """By pool: uses in their order, or the largest holder first; then others, platform, idle."""
    left: dict[tuple[str, str], dict[datetime, Amount]] = defaultdict(lambda: defaultdict(Amount))
    for at, amount in whole.items():
        left[at.pool, at.device_type][at.starts_at].add(amount.slot_microseconds, amount.micro_usd)
    found: dict[Of, dict[datetime, Amount]] = defaultdict(lambda: defaultdict(Amount))
    for who, points in held:
        rest = left[who.pool, who.device_type]
        of_kind: dict[str, dict[datetime, Amount]] = {}
        for (begin, kind), amount in points.items():
            time, cost = amount.slot_microseconds, amount.micro_usd
            if kind == UNOFFERED:
                rest[begin].add(time, cost)
                continue
            if kind not in of_kind:
                of_kind[kind] = found[view.of(who, kind)]
            of_kind[kind][begin].add(time, cost)
            rest[begin].add(-time, -cost)
    for (pool, device_type), rest in left.items():
        idle = {begin: part for begin, left in rest.items() if (part := left.idle)}
        if idle:
            found[Of(pool, device_type, IDLE)] = idle
    return sorted(found.items(), key=_order)


def _order(item: tuple[Of, Series]) -> tuple[str, str, int, int, str]:
    key, points = item
    size = sum(amount.slot_microseconds for amount in points.values()) if key.kind == HELD else 0
    return key.pool, key.device_type, _KINDS.index(key.kind), -size, key.holder
