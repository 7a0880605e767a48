"""When a run was at which step: few points, between which steps are spread evenly. Pure.

A point is kept where the last one is more than a second and half a percent of the run's age old. So
their number grows with the logarithm of the age: a run of a month has some 2,000, and no time is
wrong by more than a pixel of a chart of the whole run. After a pause, its two ends are kept.
"""

from dataclasses import dataclass, replace

MIN_SECONDS = 1.0
SHARE_OF_AGE = 0.005


@dataclass(frozen=True, slots=True)
class Point:
    """A step, and when it was first reported, in seconds of the epoch."""

    step: int
    at: float


@dataclass(frozen=True, slots=True)
class Clock:
    """The last point that was kept, and the newest one."""

    began_at: float
    kept: Point
    newest: Point


def advance(clock: Clock | None, step: int, at: float) -> tuple[Clock, tuple[Point, ...]]:
    """The clock after a report of `step`, and the points to keep."""
    if clock is None:
        first = Point(step, at)
        return Clock(at, first, first), (first,)
    if step <= clock.newest.step:
        return clock, ()
    point = Point(step, max(at, clock.newest.at))
    seconds = max(MIN_SECONDS, SHARE_OF_AGE * (point.at - clock.began_at))
    kept = []
    if point.at - clock.newest.at > seconds and clock.newest != clock.kept:
        kept.append(clock.newest)
    if point.at - clock.kept.at >= seconds:
        kept.append(point)
    return replace(clock, kept=kept[-1] if kept else clock.kept, newest=point), tuple(kept)
