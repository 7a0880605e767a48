"""The outbox relay: what was committed is published, in the order of the rows' ids.

One relay per service, held by a session lock in Postgres. A row is marked after Kafka's
acknowledgement; after a failure the relay begins again at the first row that is not marked, so an
event may come twice, with the same id, and never too late. There is no position watermark: ids
become visible out of order. Polling is the truth; a transaction of this process wakes the relay at
once. (NOTIFY would wake it for other replicas too, at a third of a handler's whole time.)
"""

import asyncio
from typing import Any

import asyncpg

from services.runtime import logs
from services.runtime.bus import OutRecord, Publisher, PublishFailed
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.errors import is_temporary
from services.runtime.instruments import OUTBOX_WAITING, PUBLISH_FAILURES, PUBLISHED

log = logs.get()

POLL_SECONDS = 0.25
RETRY_SECONDS = 1.0
SWEEP_SECONDS = 10.0
BATCH_ROWS = 500
BATCH_BYTES = 4_000_000

_LOCK = "select pg_try_advisory_lock(hashtextextended($1, 0))"
# The first row always, then as many as fit.
_UNPUBLISHED = """
select id, topic, key, value, header_names, header_values from (
    select *, sum(size) over (order by id) - size as bytes_before from (
        select *, coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)
            + octet_length(array_to_string(header_names, ''))
            + (select coalesce(sum(octet_length(it)), 0) from unnest(header_values) it) as size
        from outbox where published_at is null order by id limit $1) waiting) w
where bytes_before < $2 order by id
"""
_MARK = "update outbox set published_at = clock_timestamp() where id = any($1::bigint[])"
_SWEEP = """
delete from outbox where id in (
    select id from outbox where published_at < clock_timestamp() - interval '1 hour'
    order by published_at limit 5000)
"""
_WAITING = "select count(*) from (select 1 from outbox where published_at is null limit 10000) w"


class Relay:
    """Moves the outbox of one service to the bus until cancelled."""

    def __init__(self, database: Database, publisher: Publisher, clock: Clock) -> None:
        self._database = database
        self._publisher = publisher
        self._clock = clock
        self._wake = asyncio.Event()
        self._swept_at = clock.monotonic()
        database.on_emitted = self._wake.set

    async def run(self) -> None:
        while True:
            try:
                await self._relay()
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning("relay waits for Postgres", error=repr(error))
            await self._clock.sleep(RETRY_SECONDS)

    async def drain(self) -> None:
        """Publish what is there and return.

        Another replica may relay the same rows meanwhile: each sends in id order, so of every event
        the first copy still comes in order.
        """
        async with self._database.connection() as connection:
            while await self._publish_some(connection):
                pass

    async def _relay(self) -> None:
        connection = await self._database.dedicated_connection()
        try:
            name = f"drivetrain.relay.{self._database.schema}"
            if not await connection.fetchval(_LOCK, name):
                return  # another replica relays
            while True:
                self._wake.clear()
                num_rows = await self._publish_some(connection)
                if self._clock.monotonic() - self._swept_at >= SWEEP_SECONDS:
                    self._swept_at = self._clock.monotonic()
                    await connection.execute(_SWEEP)
                    OUTBOX_WAITING.set(await connection.fetchval(_WAITING))
                if num_rows == 0:
                    await self._wait()
        finally:
            connection.terminate()

    async def _publish_some(self, connection: asyncpg.Connection) -> int:
        """Returns how many rows were tried."""
        rows = await connection.fetch(_UNPUBLISHED, BATCH_ROWS, BATCH_BYTES)
        if not rows:
            return 0
        num_acknowledged = len(rows)
        try:
            await self._publisher.publish([_out_record(row) for row in rows])
        except PublishFailed as failure:
            num_acknowledged = failure.num_acknowledged
            PUBLISH_FAILURES.inc()
            log.warning("publication is not acknowledged", error=str(failure), rows=len(rows))
        await connection.execute(_MARK, [row["id"] for row in rows[:num_acknowledged]])
        PUBLISHED.inc(num_acknowledged)
        if num_acknowledged < len(rows):
            await self._clock.sleep(RETRY_SECONDS)
        return len(rows)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass


def _out_record(row: Any) -> OutRecord:
    headers = tuple(zip(row["header_names"], row["header_values"], strict=True))
    return OutRecord(row["topic"], row["key"], row["value"], headers)
