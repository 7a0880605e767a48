"""The read model's age, known wherever it is read: a header, a line on pages, two gauges.

It is that of the partitions this process reads.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.core.freshness import Freshness, PartitionState, is_behind, look
from services.gateway.instruments import MODEL_AGE, MODEL_LAG
from services.runtime import logs
from services.runtime.bus import Partition
from services.runtime.clock import Clock
from services.runtime.errors import TemporaryError
from services.runtime.service import Platform

log = logs.get()

HEADER = "Drivetrain-Model-Age-Seconds"
LOOK_SECONDS = 2.0
# Records that come together with the answer about the ends are handled within this time.
SETTLE_SECONDS = 0.5
# Below this, no warning is shown.
STALE_SECONDS = 5.0


class ModelAge:
    """Measured every few seconds; the age grows between measurements, and while none succeeds.

    The broker may hold the question for as long as a fetch (`IDLE_FETCH_WAIT_MS`).

    `on_change` is called when the model becomes stale, and when it is current again.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._freshness: Freshness | None = None
        self._is_stale = False

    @property
    def lag_records(self) -> int:
        return self._freshness.lag_records if self._freshness else 0

    def seconds(self, now: datetime) -> float:
        return self._freshness.age_seconds(now.timestamp()) if self._freshness else 0.0

    async def follow(self, platform: Platform) -> None:
        """The service's task: measure until cancelled."""
        started_at = platform.clock.now().timestamp()
        freshness = Freshness(started_at, started_at)
        while True:
            try:
                ends = await _ends(platform)
                asked_at = platform.clock.now().timestamp()
                partitions = await _settled(platform, ends)
                freshness = look(freshness, partitions, asked_at)
            except TemporaryError as error:
                log.debug("the model's age is not measured", error=repr(error))
            self._freshness = freshness
            self._report(self.seconds(platform.clock.now()))
            await platform.clock.sleep(LOOK_SECONDS)

    def _report(self, seconds: float) -> None:
        MODEL_AGE.set(seconds)
        MODEL_LAG.set(self.lag_records)
        is_stale = seconds >= STALE_SECONDS
        if is_stale != self._is_stale:
            self._is_stale = is_stale
            state = "read model is behind" if is_stale else "read model is current"
            log.warning(state, age_seconds=round(seconds), lag_records=self.lag_records)
            self._on_change()


async def _ends(platform: Platform) -> list[Mapping[Partition, int]]:
    """The ends of each consumer's partitions. All are asked at once: each may wait for a fetch."""
    return await asyncio.gather(*(consumer.source.end_offsets() for consumer in platform.consumers))


async def _settled(
    platform: Platform, ends: Sequence[Mapping[Partition, int]]
) -> dict[Hashable, PartitionState]:
    """Where the consumers are with regard to these ends, once what just came is handled.

    The answer about the ends waits for a fetch, which ends because records came: at that moment
    each of them would count as not handled, on a platform that handles all of them at once.
    """
    partitions = await _partitions(platform, ends)
    if any(is_behind(state) for state in partitions.values()):
        await platform.clock.sleep(SETTLE_SECONDS)
        partitions = await _partitions(platform, ends)
    return partitions


async def _partitions(
    platform: Platform, ends: Sequence[Mapping[Partition, int]]
) -> dict[Hashable, PartitionState]:
    partitions: dict[Hashable, PartitionState] = {}
    for consumer, consumer_ends in zip(platform.consumers, ends, strict=True):
        for partition in consumer.source.assignment():
            partitions[consumer.group, partition] = PartitionState(
                await consumer.position(partition),
                consumer_ends.get(partition, 0),
                consumer.handled_at.get(partition),
            )
    return partitions


class ModelAgeHeader:
    """Middleware: every answer says how old the model is that it was read from."""

    def __init__(self, app: ASGIApp, model_age: ModelAge, clock: Clock) -> None:
        self._app = app
        self._model_age = model_age
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_age(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = int(self._model_age.seconds(self._clock.now()))
                MutableHeaders(scope=message)[HEADER] = str(seconds)
            await send(message)

        await self._app(scope, receive, send_with_age)
