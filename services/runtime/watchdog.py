"""The progress watchdog: a consumer that silently stopped ends the process.

The supervisor then restarts it. aiokafka may keep running without ever fetching again, and shows no
error (issues 1154, 712, 847). So progress is measured from outside, by what was handled, not by
what was fetched.

A loop that does not iterate is stuck. While the broker answers, these are stuck too: a group
without partitions, a group that has lag and handles nothing, and a group with a partition that has
lag and makes no progress although the loop polled often enough for every partition. Partitions that
back off do not count.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from services.runtime import logs
from services.runtime.bus import Partition
from services.runtime.clock import Clock
from services.runtime.consumer import Consumer
from services.runtime.errors import PlatformError, TemporaryError
from services.runtime.instruments import LAG, LAG_SECONDS, STILL_SECONDS
from services.runtime.lag import Waits

log = logs.get()

CHECK_SECONDS = 5.0
STUCK_SECONDS = 90.0
# A longer sleep: the process was suspended, or one handler kept the event loop. Neither is the
# consumer's standstill.
SUSPENDED_SECONDS = 30.0
# In a rebuild all partitions have lag, and each waits while the records of the others are handled:
# this time, and this number of polls per partition, are enough for all of them.
TURN_FACTOR = 6
TURN_POLLS = 2
NONE: frozenset[Partition] = frozenset()

# None: unknown, because the group's offsets could not be read.
Positions = Mapping[Partition, int | None]


class Stuck(PlatformError):
    """A consumer makes no progress; the process must be restarted (exit code 70)."""


class Still(NamedTuple):
    """Seconds without progress although there was lag."""

    everywhere: float = 0.0
    longest: float = 0.0  # on one partition, during enough polls to include it


class _Place(NamedTuple):
    """A partition with lag: its position, and since when (time and number of polls)."""

    position: int | None
    since: float
    since_poll: int


@dataclass(slots=True)
class Standstill:
    """What makes no progress, and since when, by the positions observed."""

    moved_at: float
    places: Mapping[Partition, _Place] = field(default_factory=dict)

    def observe(
        self,
        positions: Positions,
        ends: Mapping[Partition, int],
        now: float,
        backing_off: Set[Partition] = NONE,
        num_polls: int = 0,
    ) -> Still:
        """How long there was no progress. A group that owns no partition makes no progress."""
        behind = {
            item: at
            for item, at in positions.items()
            if item not in backing_off and (at is None or at < ends.get(item, 0))
        }
        before = self.places
        self.places = {
            item: before[item]
            if item in before and before[item].position == at
            else _Place(at, now, num_polls)
            for item, at in behind.items()
        }
        stays = [item for item in before if self.places.get(item) == before[item]]
        if positions and len(stays) < max(len(before), 1):
            self.moved_at = now  # one made progress or reached its end, or there is no lag
        turn = TURN_POLLS * len(positions)
        waits = [now - it.since for it in self.places.values() if num_polls - it.since_poll >= turn]
        return Still(now - self.moved_at, max(waits, default=0.0))


def lag(positions: Positions, ends: Mapping[Partition, int]) -> int:
    """Records between the positions and the ends."""
    return sum(max(0, ends.get(item, 0) - (at or 0)) for item, at in positions.items())


async def watch(consumer: Consumer, clock: Clock, stuck_seconds: float = STUCK_SECONDS) -> None:
    """Raise Stuck when `consumer` makes no progress. Runs until cancelled."""
    source = consumer.source
    standstill = Standstill(clock.monotonic())
    waits = Waits()
    while True:
        before = clock.monotonic()
        await clock.sleep(CHECK_SECONDS)
        if clock.monotonic() - before > SUSPENDED_SECONDS:
            standstill = Standstill(clock.monotonic())
            continue
        if clock.monotonic() - consumer.last_moved > stuck_seconds:
            raise Stuck(f"the loop of {consumer.group} has not iterated for {stuck_seconds:.0f} s")
        try:
            ends = await source.end_offsets()
        except TemporaryError:
            # The broker does not answer: the consumer is not stuck.
            standstill = Standstill(clock.monotonic())
            continue
        positions = {item: await consumer.position(item) for item in source.assignment()}
        now = clock.monotonic()
        LAG.labels(consumer.group).set(lag(positions, ends))
        LAG_SECONDS.labels(consumer.group).set(waits.observe(positions, ends, now))
        still = standstill.observe(positions, ends, now, consumer.paused, consumer.num_polls)
        STILL_SECONDS.labels(consumer.group).set(max(still))
        if still.everywhere > stuck_seconds:
            raise Stuck(f"{consumer.group} has made no progress for {still.everywhere:.0f} s")
        if still.longest > stuck_seconds * TURN_FACTOR:
            raise Stuck(
                f"one partition of {consumer.group} has not moved for {still.longest:.0f} s"
            )
