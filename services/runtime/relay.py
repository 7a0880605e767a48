"""The outbox relay: what was committed is published, the rows of each key in order of their ids.

One relay per service, held by a session lock in Postgres. Many rows are in flight at once; each is
deleted after its own acknowledgement. A row whose outcome is unknown is sent again, and the later
rows of its key wait for it (`flow`); the other keys continue. A row that Kafka will never accept is
set aside and reported. An event may be sent twice with the same id, but never out of order. There
is no position watermark: ids become visible out of order. Correctness depends on polling alone; a
transaction of this process wakes the relay early. (NOTIFY would wake it for other replicas too, at
a third of a handler's whole time.)
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import asyncpg

from services.runtime import logs
from services.runtime.bus import (
    BusUnavailable,
    Delivery,
    Outcome,
    OutRecord,
    Publisher,
    PublishFailed,
)
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.flow import Flow, Key
from services.runtime.instruments import (
    OUTBOX_AGE,
    OUTBOX_HELD_KEYS,
    OUTBOX_REFUSED,
    OUTBOX_WAITING,
    PUBLISH_FAILURES,
    PUBLISH_SECONDS,
    PUBLISHED,
)
from services.runtime.outbox import unpack
from services.runtime.repeating import repeat

log = logs.get()

# A transaction of this process wakes the relay; polling finds the rows of others.
POLL_SECONDS = 1.0
RETRY_SECONDS = 1.0
# Acknowledgements arrive in bursts; they are collected this long into one statement.
GATHER_SECONDS = 0.005
COUNT_SECONDS = 10.0
BATCH_ROWS = 500
BATCH_BYTES = 1_000_000
# While keys are held, a search has to skip their rows: at most this share of the time.
SEARCH_SHARE = 0.25
MIN_SEARCH_SECONDS = 0.02

_LOCK = "select pg_try_advisory_lock(hashtextextended($1, 0))"
# The first row always, then as many as fit; of the first $5 rows, or of all.
_NEXT = """
select id, topic, key, value, headers, size_bytes from (
    select *, sum(size_bytes) over (order by id) - size_bytes as bytes_before from (
        select * from (
            select * from outbox where refused_at is null order by id limit $5) first
        where (topic, coalesce(key, '')) not in (select * from unnest($1::text[], $2::bytea[]))
        order by id limit $3) waiting) w
where bytes_before < $4 order by id
"""
_THESE = """
select id, topic, key, value, headers, size_bytes from outbox
where id = any($1::bigint[]) and refused_at is null order by id
"""
_DELETE = "delete from outbox where id = any($1::bigint[])"
_REFUSE = """
update outbox set refused_at = clock_timestamp(), refusal = refused.detail
from unnest($1::bigint[], $2::text[]) as refused (id, detail) where outbox.id = refused.id
"""
_WAITING = "select count(*) from (select 1 from outbox where refused_at is null limit 10000) w"
# By the primary key: the row with the lowest id is not younger than others by more than a moment.
_OLDEST_SECONDS = """
select extract(epoch from clock_timestamp() - created_at)::float8 from outbox
where refused_at is null order by id limit 1
"""


class _Row(NamedTuple):
    """One row in flight."""

    id: int
    key: Key
    size_bytes: int


class Relay:
    """Moves the outbox of one service to the bus until cancelled."""

    def __init__(self, database: Database, publisher: Publisher, clock: Clock) -> None:
        self._database = database
        self._publisher = publisher
        self._clock = clock
        self._wake = asyncio.Event()
        self._flow = Flow()
        # Outcomes that are not recorded yet.
        self._settled: list[tuple[_Row, Delivery]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._is_bus_available = True
        self._quiet_until = 0.0
        self._recorded_at = 0.0
        self._counted_at = clock.monotonic()
        database.on_emitted = self._wake.set

    async def run(self) -> None:
        await repeat(self._relay, self._clock, RETRY_SECONDS, "relay waits for Postgres")

    async def drain(self) -> None:
        """Publish what can be published now and return.

        Another replica may relay the same rows meanwhile: each sends in id order, so the first
        copies of all events are still in order.
        """
        async with self._database.connection() as connection:
            while True:
                if await self._step(connection):
                    continue
                if self._flow.is_idle:
                    return
                await self._wait()

    async def _relay(self) -> None:
        connection = await self._database.dedicated_connection()
        try:
            name = f"drivetrain.relay.{self._database.schema}"
            if not await connection.fetchval(_LOCK, name):
                return  # another replica relays
            while True:
                if self._clock.monotonic() - self._counted_at >= COUNT_SECONDS:
                    self._counted_at = self._clock.monotonic()
                    OUTBOX_WAITING.set(await connection.fetchval(_WAITING))
                    OUTBOX_AGE.set(await connection.fetchval(_OLDEST_SECONDS) or 0.0)
                if not await self._step(connection):
                    await self._wait()
        finally:
            OUTBOX_WAITING.set(0)  # whoever relays next counts them
            OUTBOX_AGE.set(0)
            connection.terminate()

    async def _step(self, connection: asyncpg.Connection) -> bool:
        """Record outcomes, send what may be sent. True where something was sent."""
        self._wake.clear()
        await self._record(connection)
        now = self._clock.monotonic()
        if now < self._quiet_until or not self._flow.has_room():
            return False
        if not self._is_bus_available and not self._flow.is_idle:
            return False  # one call at a time tries it again
        probed = self._flow.due(now)
        if probed:
            # By their ids: however long the outbox is, a probe costs the same.
            rows = await connection.fetch(_THESE, [*probed.values()])
            self._flow.forget(probed.keys() - {_key(row) for row in rows})
            self._send(rows)
        excluded = self._flow.excluded()
        topics, keys = [key.topic for key in excluded], [key.key for key in excluded]
        depth = self._search_depth(now)
        rows = await connection.fetch(_NEXT, topics, keys, BATCH_ROWS, BATCH_BYTES, depth)
        self._send(rows)
        took = self._clock.monotonic() - now
        if self._flow.num_held and took > MIN_SEARCH_SECONDS:
            self._quiet_until = now + took / SEARCH_SHARE
        return bool(rows)

    def _search_depth(self, now: float) -> int | None:
        """How many rows to look at for those that may be sent; None: as many as there are.

        Keys that are in flight are free again in a moment, so their later rows are not worth
        skipping: one key with a long backlog would be read whole for each batch of it.
        """
        if self._flow.num_held or now - self._recorded_at > POLL_SECONDS:
            return None
        return self._flow.num_rows + BATCH_ROWS

    def _send(self, rows: Sequence[Any]) -> None:
        if not rows:
            return
        sent = [_Row(row["id"], _key(row), row["size_bytes"]) for row in rows]
        self._flow.send([row.key for row in sent], sum(row.size_bytes for row in sent))
        call = asyncio.create_task(self._publish(sent, [_out_record(row) for row in rows]))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _publish(self, rows: Sequence[_Row], records: Sequence[OutRecord]) -> None:
        unknown = dict.fromkeys(range(len(rows)), Delivery(Outcome.UNKNOWN))
        detail = ""
        try:
            with PUBLISH_SECONDS.time():
                await self._publisher.publish(records, partial(self._on_settled, rows, unknown))
        except BusUnavailable as failure:
            detail = str(failure)
            self._is_bus_available = False
            self._quiet_until = self._clock.monotonic() + RETRY_SECONDS
        except PublishFailed as failure:
            detail = str(failure)
            self._is_bus_available = True
        except Exception as error:
            detail = repr(error)
            log.exception("publication failed")
        if unknown:
            PUBLISH_FAILURES.inc()
            log.warning("records are not acknowledged", error=detail, records=len(unknown))
            self._settled += [(rows[index], delivery) for index, delivery in unknown.items()]
            self._wake.set()

    def _on_settled(
        self, rows: Sequence[_Row], unknown: dict[int, Delivery], index: int, delivery: Delivery
    ) -> None:
        if delivery.outcome is Outcome.UNKNOWN:
            unknown[index] = delivery  # recorded with the end of the call
            return
        del unknown[index]
        self._is_bus_available = True
        if not self._settled:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._wake.set)
        self._settled.append((rows[index], delivery))

    async def _record(self, connection: asyncpg.Connection) -> None:
        """Record outcomes; only then may the next rows of their keys be sent."""
        settled = self._settled[:]
        if not settled:
            return
        by_outcome: dict[Outcome, list[tuple[_Row, str]]] = {outcome: [] for outcome in Outcome}
        for row, delivery in settled:
            by_outcome[delivery.outcome].append((row, delivery.detail))
        done = [row for row, _ in by_outcome[Outcome.ACKNOWLEDGED]]
        if done:
            await connection.execute(_DELETE, [row.id for row in done])
            PUBLISHED.inc(len(done))
        refused = by_outcome[Outcome.REFUSED]
        if refused:
            await self._set_aside(connection, refused)
        del self._settled[: len(settled)]
        if self._settled:
            self._wake.set()
        now = self._recorded_at = self._clock.monotonic()
        for row, _ in settled:
            self._flow.settle(row.key, row.size_bytes)
        self._flow.release({row.key for row in done} | {row.key for row, _ in refused}, now)
        self._hold(by_outcome[Outcome.UNKNOWN], now)
        OUTBOX_HELD_KEYS.set(self._flow.num_held)

    def _hold(self, unknown: Sequence[tuple[_Row, str]], now: float) -> None:
        if not self._is_bus_available:
            return  # nothing was sent, and all keys wait
        held = [(row, detail) for row, detail in unknown if self._flow.hold(row.key, row.id, now)]
        for row, detail in held[:1]:
            log.warning(
                "keys are held back",
                num_keys=len(held),
                topic=row.key.topic,
                key=row.key.key.decode(errors="replace"),
                error=detail,
            )

    async def _set_aside(
        self, connection: asyncpg.Connection, refused: Sequence[tuple[_Row, str]]
    ) -> None:
        await connection.execute(
            _REFUSE, [row.id for row, _ in refused], [detail for _, detail in refused]
        )
        for row, detail in refused:
            OUTBOX_REFUSED.labels(row.key.topic).inc()
            log.error(
                "outbox row is refused by Kafka and set aside",
                id=row.id,
                topic=row.key.topic,
                key=row.key.key.decode(errors="replace"),
                size_bytes=row.size_bytes,
                error=detail,
            )

    async def _wait(self) -> None:
        quiet = self._quiet_until - self._clock.monotonic()
        try:
            async with asyncio.timeout(min(POLL_SECONDS, quiet) if quiet > 0 else POLL_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass


def _key(row: Any) -> Key:
    return Key(row["topic"], row["key"] or b"")


def _out_record(row: Any) -> OutRecord:
    return OutRecord(row["topic"], row["key"], row["value"], unpack(row["headers"]))
