"""The progress watchdog: a consumer that silently stopped ends the process, which is started anew.

aiokafka may live on without ever fetching again, with no public sign of it (issues 1154, 712, 847).
So progress is measured from outside: a loop that does not turn is stuck; and, while the broker
answers, so is a group that owns nothing, or has lag and whose positions all stand still. Partitions
that back off on purpose do not count.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from services.runtime import logs
from services.runtime.bus import Partition
from services.runtime.clock import Clock
from services.runtime.consumer import Consumer
from services.runtime.errors import PlatformError, TemporaryError
from services.runtime.instruments import LAG

log = logs.get()

CHECK_SECONDS = 5.0
STUCK_SECONDS = 90.0
NONE: frozenset[Partition] = frozenset()

# None: not known, because the group's offsets could not be read.
Positions = Mapping[Partition, int | None]


class Stuck(PlatformError):
    """A consumer makes no progress; the process must be started anew (exit code 70)."""


@dataclass(slots=True)
class Progress:
    """When something last moved, by the positions seen."""

    since: float
    positions: Positions = field(default_factory=dict)

    def observe(
        self,
        positions: Positions,
        ends: Mapping[Partition, int],
        now: float,
        backing_off: Set[Partition] = NONE,
    ) -> float:
        """Seconds for which there was something to do and nothing was done."""
        watched = {item: at for item, at in positions.items() if item not in backing_off}
        is_idle = bool(positions) and all(
            at is not None and at >= ends.get(item, 0) for item, at in watched.items()
        )
        if is_idle or watched != self.positions:
            self.since = now
            self.positions = watched
        return now - self.since


def lag(positions: Positions, ends: Mapping[Partition, int]) -> int:
    """Records between the positions and the ends."""
    return sum(max(0, ends.get(item, 0) - (at or 0)) for item, at in positions.items())


async def watch(consumer: Consumer, clock: Clock, stuck_seconds: float = STUCK_SECONDS) -> None:
    """Raise Stuck when `consumer` stands still. Runs until cancelled."""
    source = consumer.source
    progress = Progress(since=clock.monotonic())
    while True:
        await clock.sleep(CHECK_SECONDS)
        if clock.monotonic() - consumer.last_moved > stuck_seconds:
            raise Stuck(f"the loop of {consumer.group} has not turned for {stuck_seconds:.0f} s")
        try:
            ends = await source.end_offsets()
        except TemporaryError:
            progress.since = clock.monotonic()  # the broker does not answer: not our standstill
            continue
        positions = {item: await source.position(item) for item in source.assignment()}
        LAG.labels(consumer.group).set(lag(positions, ends))
        seconds = progress.observe(positions, ends, clock.monotonic(), consumer.paused)
        if seconds > stuck_seconds:
            raise Stuck(f"{consumer.group} has made no progress for {seconds:.0f} s")
