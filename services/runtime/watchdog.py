"""The progress watchdog: a consumer that silently stopped ends the process, which is started anew.

aiokafka may live on without ever fetching again, with no public sign of it (issues 1154, 712, 847).
So progress is measured from outside: while the broker answers, a group that owns nothing, or has
lag and whose positions all stand still, for too long, is stuck. Partitions that back off on purpose
do not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.runtime import logs
from services.runtime.bus import Partition
from services.runtime.clock import Clock
from services.runtime.consumer import Consumer, lag
from services.runtime.errors import PlatformError, is_temporary
from services.runtime.instruments import LAG

log = logs.get()

CHECK_SECONDS = 5.0
STUCK_SECONDS = 90.0


class Stuck(PlatformError):
    """A consumer makes no progress; the process must be started anew (exit code 70)."""


@dataclass(slots=True)
class Progress:
    """When something last moved, by the positions seen."""

    since: float
    positions: Mapping[Partition, int] = field(default_factory=dict)

    def observe(
        self, positions: Mapping[Partition, int], ends: Mapping[Partition, int], now: float
    ) -> float:
        """Seconds for which there was something to do and nothing was done."""
        is_idle = bool(positions) and lag(ends, positions) == 0
        if is_idle or dict(positions) != dict(self.positions):
            self.since = now
            self.positions = dict(positions)
        return now - self.since


async def watch(consumer: Consumer, clock: Clock, stuck_seconds: float = STUCK_SECONDS) -> None:
    """Raise Stuck when `consumer` stands still. Runs until cancelled."""
    progress = Progress(since=clock.monotonic())
    while True:
        await clock.sleep(CHECK_SECONDS)
        try:
            partitions = consumer.source.assignment() - consumer.paused
            positions = {item: await consumer.source.position(item) for item in partitions}
            ends = await consumer.source.end_offsets(partitions) if partitions else {}
        except Exception as error:
            if not is_temporary(error) and not _is_not_ready(error):
                raise
            progress.since = clock.monotonic()  # the broker does not answer: not our standstill
            continue
        LAG.labels(consumer.group).set(lag(ends, positions))
        if consumer.paused:
            progress.since = clock.monotonic()
        seconds = progress.observe(positions, ends, clock.monotonic())
        if seconds > stuck_seconds:
            raise Stuck(f"{consumer.group} has made no progress for {seconds:.0f} s")


def _is_not_ready(error: Exception) -> bool:
    """aiokafka's errors while a group is being joined or a partition was just lost."""
    return type(error).__module__.startswith("aiokafka")
