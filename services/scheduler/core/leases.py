"""When missing heartbeats count: the rule by which a run's lease lapses.

A run sends heartbeats, the scheduler sends beacons to itself on the same topic. Missing heartbeats
count only while the beacons of every partition arrive without a pause, so a broker or network that
is down never makes a run suspect. Times are seconds of one monotonic clock. A lapsed lease changes
only the state that is shown; nothing is ever killed for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MISSED_BEACONS = 3


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Beacons of one partition: the last one, and since when they have arrived without a pause."""

    last_at: float
    steady_since: float


def after_beacon(known: Steadiness | None, at: float, interval: float) -> Steadiness:
    """The steadiness after one more beacon has arrived."""
    if known is None or at - known.last_at > MISSED_BEACONS * interval:
        return Steadiness(at, at)
    return Steadiness(at, known.steady_since)


def silence_limit(
    beacons: Mapping[int, Steadiness],
    num_partitions: int,
    now: float,
    *,
    lease: float,
    interval: float,
) -> float | None:
    """A run whose last heartbeat is older was silent for a whole lease while all beacons came back;
    None while silence says nothing about any run."""
    if len(beacons) < num_partitions:
        return None
    if any(now - beacon.last_at > MISSED_BEACONS * interval for beacon in beacons.values()):
        return None
    steady_since = max(beacon.steady_since for beacon in beacons.values())
    return now - lease if steady_since < now - lease else None
