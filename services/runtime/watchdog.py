"""The progress watchdog: a consumer that silently stopped ends the process, which is started anew.

aiokafka may live on without ever fetching again, with no public sign of it (issues 1154, 712, 847).
So progress is measured from outside: a loop that does not turn is stuck; and, while the broker
answers, so is a group that owns nothing, one that has lag and moves nowhere, and, after a time in
which each of many partitions had its turn, one that has a partition with lag which does not move.
Partitions that back off on purpose do not count.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from services.runtime import logs
from services.runtime.bus import Partition
from services.runtime.clock import Clock
from services.runtime.consumer import Consumer
from services.runtime.errors import PlatformError, TemporaryError
from services.runtime.instruments import LAG

log = logs.get()

CHECK_SECONDS = 5.0
STUCK_SECONDS = 90.0
# In a rebuild all partitions have lag, and each waits while what the others fetched is handled.
TURN_FACTOR = 6
NONE: frozenset[Partition] = frozenset()

# None: not known, because the group's offsets could not be read.
Positions = Mapping[Partition, int | None]


class Stuck(PlatformError):
    """A consumer makes no progress; the process must be started anew (exit code 70)."""


class Still(NamedTuple):
    """Seconds for which there was something to do and nothing was done."""

    everywhere: float = 0.0
    longest: float = 0.0  # on the one partition that stands longest


@dataclass(slots=True)
class Progress:
    """What stands, and since when, by the positions seen."""

    moved_at: float
    # The position of each partition with lag, and since when it is there.
    standing: Mapping[Partition, tuple[int | None, float]] = field(default_factory=dict)

    def observe(
        self,
        positions: Positions,
        ends: Mapping[Partition, int],
        now: float,
        backing_off: Set[Partition] = NONE,
    ) -> Still:
        """What stands still now. A group that owns nothing stands everywhere."""
        behind = {
            item: at
            for item, at in positions.items()
            if item not in backing_off and (at is None or at < ends.get(item, 0))
        }
        before = self.standing
        self.standing = {
            item: before[item] if item in before and before[item][0] == at else (at, now)
            for item, at in behind.items()
        }
        stays = [item for item in before if self.standing.get(item) == before[item]]
        if positions and len(stays) < max(len(before), 1):
            self.moved_at = now  # one went on, or reached its end, or there is nothing to do
        longest = max((now - since for _, since in self.standing.values()), default=0.0)
        return Still(now - self.moved_at, longest)


def lag(positions: Positions, ends: Mapping[Partition, int]) -> int:
    """Records between the positions and the ends."""
    return sum(max(0, ends.get(item, 0) - (at or 0)) for item, at in positions.items())


async def watch(consumer: Consumer, clock: Clock, stuck_seconds: float = STUCK_SECONDS) -> None:
    """Raise Stuck when `consumer` stands still. Runs until cancelled."""
    source = consumer.source
    progress = Progress(clock.monotonic())
    while True:
        await clock.sleep(CHECK_SECONDS)
        if clock.monotonic() - consumer.last_moved > stuck_seconds:
            raise Stuck(f"the loop of {consumer.group} has not turned for {stuck_seconds:.0f} s")
        try:
            ends = await source.end_offsets()
        except TemporaryError:
            progress = Progress(clock.monotonic())  # the broker does not answer: not our standstill
            continue
        positions = {item: await source.position(item) for item in source.assignment()}
        LAG.labels(consumer.group).set(lag(positions, ends))
        still = progress.observe(positions, ends, clock.monotonic(), consumer.paused)
        if still.everywhere > stuck_seconds:
            raise Stuck(f"{consumer.group} has made no progress for {still.everywhere:.0f} s")
        if still.longest > stuck_seconds * TURN_FACTOR:
            raise Stuck(f"one partition of {consumer.group} stands for {still.longest:.0f} s")
