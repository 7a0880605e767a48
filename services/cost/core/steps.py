"""Time cut into hours or days of UTC.

A range is whole steps. What lies before or after it is one piece each, so that an amount that is
rounded as it grows is the same however much of it is looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR_FUTURE = datetime(9999, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


class Step(StrEnum):
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        return _DAY if self is Step.DAY else timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Steps:
    """From `starts_at` (in) to `ends_at` (out), each a multiple of the step."""

    step: Step
    starts_at: datetime = EPOCH
    ends_at: datetime = FAR_FUTURE

    def pieces(self, first: datetime, last: datetime) -> Iterator[tuple[datetime | None, int]]:
        """This time in order, without gaps: the begin of the step, or None outside of the range,
        and the microseconds of the piece."""
        if first < self.starts_at:
            yield None, (min(last, self.starts_at) - first) // _MICROSECOND
            first = self.starts_at
        end = min(last, self.ends_at)
        length = self.step.length
        whole = length // _MICROSECOND
        begin = EPOCH + (first - EPOCH) // length * length
        while first < end:
            following = begin + length
            if first == begin and following <= end:
                yield begin, whole
            else:
                yield begin, (min(following, end) - first) // _MICROSECOND
            begin = first = following
        if first < last:
            yield None, (last - first) // _MICROSECOND

    def begins(self, until: datetime) -> list[datetime]:
        """The begin of each step of the range that has begun before `until`."""
        return [begin for begin, _ in self.pieces(self.starts_at, until) if begin is not None]


def days(first: date, last: date, step: Step = Step.DAY) -> Steps:
    """The steps from the first day (UTC) to the end of the last."""
    return Steps(step, midnight(first), midnight(last) + _DAY)


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
