"""A small service for tests: it stores the charges it reads, and emits each again.

Its one handler writes state and emits; what it does to certain events is chosen by the test.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event, encode
from services.runtime.bus import OutRecord, Partition
from services.runtime.consumer import Consumer, FailedAtRecord
from services.runtime.database import Database
from services.runtime.processing import EventProcessor
from services.runtime.transaction import Tx
from tests.events import make_event
from tests.fakes import InMemoryBus, ManualClock
from tests.handlers.runtime.charges import charge

TOPIC = "drivetrain.events.charges"
GROUP = "adder"
Behaviour = Callable[[int], Awaitable[None]]


@dataclass
class Adder:
    """One process of the service on a bus in memory and a real Postgres."""

    bus: InMemoryBus
    database: Database
    clock: ManualClock = field(default_factory=ManualClock)
    misbehave: Behaviour | None = None
    service: str = "gateway"
    max_batch: int = 200

    async def handle(self, tx: Tx, event: Event[ChargeRecorded]) -> None:
        await tx.connection.execute(
            "insert into heard (amount) values ($1)", event.payload.amount_micro_usd
        )
        if self.misbehave is not None:
            await self.misbehave(event.payload.amount_micro_usd)
        await tx.emit(event.payload, tenant_id=event.tenant_id, cause=event)

    def consumer(self) -> Consumer:
        processor = EventProcessor(
            self.service,
            "drivetrain.",
            {ChargeRecorded: self.handle},
            {},
            max_batch=self.max_batch,
        )
        source = self.bus.source(GROUP, [TOPIC])
        return Consumer(GROUP, source, processor, self.database, self.clock)

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator["asyncio.Task[None]"]:
        """The consumer, until the end of the block; what it then holds is abandoned."""
        task = asyncio.create_task(self.consumer().run(asyncio.Event(), **options))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def crash(self, kind: type[BaseException] | None = None, **options: Any) -> None:
        """A process that is expected to end by the handler's bug, or by what `kind` says."""
        async with self.running(**options) as task:
            await asyncio.wait({task})
        error = task.exception()
        cause = error.__cause__ if isinstance(error, FailedAtRecord) else error
        assert isinstance(cause, kind or Bug), error

    async def heard(self) -> list[int]:
        async with self.database.connection() as connection:
            rows = await connection.fetch("select amount from heard order by id")
        return [row["amount"] for row in rows]

    def committed(self) -> Mapping[Partition, int]:
        return {
            partition: offset
            for (group, partition), offset in self.bus._committed.items()
            if group == GROUP
        }


class Bug(Exception):
    """What a handler's bug raises."""


class Killed(BaseException):
    """Ends the consumer as `kill -9` would: nothing catches it, nothing is closed."""


async def make_adder(database: Database, num_partitions: int = 1, **options: Any) -> Adder:
    async with database.connection() as connection:
        await connection.execute(
            "create table if not exists heard (id bigserial primary key, amount bigint not null)"
        )
    return Adder(InMemoryBus(num_partitions), database, **options)


async def say(bus: InMemoryBus, *amounts: int, tenant_id: str = "default") -> None:
    """One event for each amount."""
    await publish(bus, *(make_event(charge(amount, tenant_id)) for amount in amounts))


async def publish(bus: InMemoryBus, *events: Event[ChargeRecorded]) -> None:
    records = []
    for event in events:
        headers, key, value = encode(event)
        records.append(OutRecord(TOPIC, key, value, tuple(headers)))
    await bus.publish(records)


async def until(condition: Callable[[], Any], clock: ManualClock | None = None) -> None:
    """Wait for a condition, sync or async; the clock goes on meanwhile."""
    async with asyncio.timeout(20):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            if clock is not None:
                await clock.advance(0.1)
            await asyncio.sleep(0.005)
