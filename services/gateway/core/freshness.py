"""How far the read model is behind: from positions and ends, measured repeatedly.

A partition is as new as the later of two times: when it was last measured without lag, and the time
of the last record handled from it. The model is as new as its oldest partition.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

# An age that was measured longer ago than this is itself out of date. A measurement takes up to 6 s
# on an idle platform, because the broker holds the question for as long as a fetch.
LOOK_HOLDS_SECONDS = 10.0


class PartitionState(NamedTuple):
    """The next record to handle, the end, and when the last handled record was written."""

    position: int | None
    end: int
    handled_at: float | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Times are seconds since the epoch. `fresh_at`: all that was written until then is handled."""

    looked_at: float
    fresh_at: float
    lag_records: int = 0
    is_current: bool = False
    caught_up_at: Mapping[Hashable, float] = field(default_factory=dict)

    def age_seconds(self, now: float) -> float:
        """0 while everything is handled."""
        if self.is_current and now - self.looked_at <= LOOK_HOLDS_SECONDS:
            return 0.0
        return max(0.0, now - self.fresh_at)


def is_behind(state: PartitionState) -> bool:
    return state.position is None or state.position < state.end


def look(before: Freshness, partitions: Mapping[Hashable, PartitionState], now: float) -> Freshness:
    """The state after another measurement. Without partitions nothing is read, so the age grows."""
    if not partitions:
        return replace(before, looked_at=now, is_current=False)
    behind = {name: state for name, state in partitions.items() if is_behind(state)}
    current = dict.fromkeys(partitions.keys() - behind.keys(), now)
    caught_up_at = {**before.caught_up_at, **current}
    known = (
        max((caught_up_at.get(name), state.handled_at), key=_or_never)
        for name, state in behind.items()
    )
    return Freshness(
        looked_at=now,
        fresh_at=min((before.fresh_at if at is None else at for at in known), default=now),
        lag_records=sum(state.end - (state.position or 0) for state in behind.values()),
        is_current=not behind,
        caught_up_at=caught_up_at,
    )


def _or_never(at: float | None) -> float:
    return -1.0 if at is None else at
