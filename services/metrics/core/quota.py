"""How much of what one sender writes is stored: a token bucket, by the times of the broker.

Each record counts at the time at which the broker appended it, not at which it is read. So a
backlog is decided as it would have been at once: who stays under the rate loses nothing after an
outage, and a flood is cut to the rate however late it is read.
"""

from dataclasses import dataclass

# What a sender may write at once after it wrote nothing, in seconds of its rate.
BURST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """What a sender may still write at the time `at`, in seconds; negative after a large record."""

    level: float
    at: float


def full(rate: float, at: float) -> Bucket:
    return Bucket(rate * BURST_SECONDS, at)


def slot_of(at: float) -> int:
    """The number of the ten seconds in which this time is."""
    return int(at // BURST_SECONDS)


def of_slot(rate: float, at: float) -> Bucket:
    """What may be written in the ten seconds of this time, in whatever order it is read."""
    return Bucket(rate * BURST_SECONDS, (slot_of(at) + 1) * BURST_SECONDS)


def filled(bucket: Bucket, rate: float, at: float) -> Bucket:
    """The bucket at a later time; a time before its own changes nothing."""
    if at <= bucket.at:
        return bucket
    return Bucket(min(rate * BURST_SECONDS, bucket.level + (at - bucket.at) * rate), at)


def taken(bucket: Bucket, cost: float) -> Bucket:
    return Bucket(bucket.level - cost, bucket.at)


def has_room(bucket: Bucket) -> bool:
    """A record is stored whole or not at all, so the last one may take more than is left."""
    return bucket.level > 0


def is_full(bucket: Bucket, rate: float, at: float) -> bool:
    """Such a bucket is the same as none."""
    return filled(bucket, rate, at).level >= rate * BURST_SECONDS
