"""What it costs that effects happen once: a handler's transaction, and the whole event path.

`handler_transaction`: the cost service's release handler as the runtime runs it (read the event,
inbox row, state, charge, numbered outbox row) against plain inserts of the same rows by the same
driver, in one transaction as well. `event_path`: releases through consume -> handle -> publish
against a bare loop of aiokafka and asyncpg that does the same work with neither inbox nor outbox,
so that any crash loses or doubles something. Real Kafka, real Postgres, alternating.
"""

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.report import Row, options, publish
from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.envelope import Event, encode, parse
from services.cost.core.charges import charges
from services.cost.handlers import handlers, recorded, usage
from services.cost.price_file import read_price_book
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import logs
from services.runtime.bus import OutRecord, Record
from services.runtime.database import Database
from services.runtime.kafka import CONSUMER_OPTIONS, PRODUCER_OPTIONS, KafkaAccess, KafkaPublisher
from services.runtime.processing import EventProcessor, inbox_digest
from services.runtime.service import Running
from services.runtime.topics import create_topics
from services.runtime.transaction import Origin
from services.standalone.embedded import running_kafka, running_postgres
from tests.integration.runtime.cost import releases
from tests.platform_service import running, service_environment

TARGET_TRANSACTION = 0.5
TARGET_PATH = 0.5
BOOK = read_price_book(CostSettings.model_fields["price_book"].default)

# The columns of the cost service's tables and of the outbox, without their constraints' help.
PLAIN_TABLES = """
create schema plain;
create table plain.allocations (like cost.allocations including all);
create table plain.charges (like cost.charges including all);
create table plain.inbox (like cost.inbox including all);
create table plain.outbox (like cost.outbox including all);
"""


def main() -> None:
    given = options("Cost of effects that happen once")
    logs.configure("bench", "warning")
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    publish(asyncio.run(measure(given.quick)), given.json, ["aiokafka", "asyncpg"])


async def measure(quick: bool) -> list[Row]:
    # Short turns, so that what else the machine does falls on both.
    num_rounds, num_events = (20, 20) if quick else (100, 40)
    num_path_rounds, num_path_events = (1, 800) if quick else (3, 3000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with running_postgres(folder / "postgres") as postgres:
            transaction = await transactions(postgres.dsn, num_rounds, num_events)
            async with running_kafka(folder / "kafka") as broker:
                access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
                path = [
                    await paths(access, postgres.dsn, number, num_path_events)
                    for number in range(num_path_rounds)
                ]
    return [
        row(
            "handler_transaction",
            "release handled, charged and emitted once, in one transaction",
            transaction,
            TARGET_TRANSACTION,
            "plain inserts of the same rows",
        ),
        row(
            "event_path",
            "events through consume -> handle -> publish, one process",
            path,
            TARGET_PATH,
            "the same work without inbox and outbox",
        ),
    ]


Rates = tuple[float, float]


def row(name: str, what: str, rates: Sequence[Rates], target: float, peer: str) -> Row:
    """The ratio is the median of the rounds' ratios."""
    ratio = statistics.median(ours / theirs for ours, theirs in rates)
    ours, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
    return Row(
        id=name,
        what=what,
        ours=f"{ours:,.0f}/s",
        peer=f"{theirs:,.0f}/s ({peer})",
        ratio=ratio,
        target=f"at least {target} x",
        met=ratio >= target,
    )


async def timed(work: Callable[[], Awaitable[None]], num_events: int) -> float:
    """Events per second."""
    began = time.perf_counter()
    await work()
    return num_events / (time.perf_counter() - began)


def record_of(event: Event[Any], topic: str) -> Record:
    headers, key, value = encode(event)
    return Record(topic, 0, 0, 0, key, value, tuple(headers))


async def transactions(dsn: str, num_rounds: int, num_events: int) -> list[Rates]:
    database = Database(dsn, "cost", Origin("/drivetrain/cost", "drivetrain."))
    await database.open(["services.cost"])
    connection = await asyncpg.connect(dsn)
    await connection.execute(PLAIN_TABLES)
    processor = EventProcessor("cost", "drivetrain.", handlers(BOOK), {})
    rates = []
    try:
        for number in range(num_rounds):
            events = releases(num_events, first=number * num_events)
            records = [record_of(event, "drivetrain.events.jobs") for event in events]

            async def ours(records: list[Record] = records) -> None:
                for record in records:
                    work = processor.plan([record])
                    assert work is not None
                    async with database.transaction() as tx:
                        await work(tx)

            async def plain(records: list[Record] = records) -> None:
                for record in records:
                    await insert_plainly(connection, record, PLAIN_INSERTS)

            pair = (await timed(ours, num_events), await timed(plain, num_events))
            rates.append(pair)
        written = await connection.fetchval("select count(*) from cost.charges")
        assert written == await connection.fetchval("select count(*) from plain.charges") > 0
        await connection.execute("truncate cost.outbox")  # nobody relays these
    finally:
        await connection.close()
        await database.close()
    return rates[1:] or rates  # the first one warms statement caches


PLAIN_INSERTS = ("allocations", "charges", "inbox", "outbox")


async def insert_plainly(
    connection: asyncpg.Connection, record: Record, tables: Sequence[str]
) -> OutRecord:
    """Read the event and insert the rows that the handler writes; returns what is to be sent."""
    event = parse(record.headers, record.value)
    released = event.payload
    assert isinstance(released, AllocationReleased)
    (charge,) = charges(usage(released), BOOK)
    payload = recorded(released, charge)
    headers, key, value = encode(replace(event, payload=payload, seq=1))
    names, texts = [name for name, _ in headers], [text for _, text in headers]
    facts = (released.allocation_id, released.tenant_id, released.job_id, released.pool)
    async with connection.transaction():
        if "inbox" in tables:
            await connection.execute(
                'insert into plain.inbox (digest, topic, partition, "offset")'
                " values ($1, $2, $3, $4)",
                inbox_digest(event.source, event.event_id),
                *(record.topic, record.partition, record.offset),
            )
        await connection.execute(
            "insert into plain.allocations values ($1, $2, $3, $4, $5, $6, $7, $8)",
            *(*facts, released.device_type, len(released.slots)),
            *(released.granted_at, released.released_at),
        )
        await connection.execute(
            "insert into plain.charges values"
            " ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
            *(charge.charge_id, released.tenant_id, released.job_id, released.run_id),
            *(released.attempt, released.allocation_id, released.pool, released.device_type),
            *(len(released.slots), charge.period.starts_at, charge.period.ends_at),
            *(charge.period.price_id, charge.period.micro_usd_per_slot_hour),
            charge.amount_micro_usd,
        )
        if "outbox" in tables:
            await connection.execute(
                "insert into plain.outbox (id, topic, key, value, header_names, header_values)"
                " values (nextval('cost.outbox_id_seq'), $1, $2, $3, $4, $5)",
                *("drivetrain.events.charges", key, value, names, texts),
            )
    return OutRecord("events.charges", key, value, tuple(headers))


async def paths(access: KafkaAccess, dsn: str, number: int, num_events: int) -> Rates:
    """One round: the same releases through the service, and through the bare loop."""
    prefix = f"bench{number}."
    await create_topics(access, prefix)
    events = releases(num_events, first=1_000_000 + number * num_events)
    records = [record_of(event, f"{prefix}events.jobs") for event in events]
    publisher = KafkaPublisher(access, "bench")
    for start in range(0, num_events, 500):
        await publisher.publish(
            [OutRecord(it.topic, it.key, it.value, it.headers) for it in records[start:][:500]]
        )
    await publisher.close()
    service = build(CostSettings(**service_environment(access, dsn, prefix)))

    async def ours() -> None:
        async with running(service) as process:
            await until_published(process, f"{prefix}events.charges", num_events)

    return (
        await timed(ours, num_events),
        await timed(lambda: bare(access, dsn, prefix, num_events), num_events),
    )


async def until_published(process: Running, topic: str, num_events: int) -> None:
    """Every release is charged and every outbox row is acknowledged by the broker."""
    async with process.platform.database.connection() as connection:
        while True:
            charged = await connection.fetchval(
                "select count(*) from outbox where topic = $1 and published_at is not null", topic
            )
            if charged >= num_events:
                return
            await asyncio.sleep(0.05)


async def bare(access: KafkaAccess, dsn: str, prefix: str, num_events: int) -> None:
    connection = await asyncpg.connect(dsn)
    consumer = AIOKafkaConsumer(
        f"{prefix}events.jobs",
        group_id=f"{prefix}bare",
        max_poll_records=200,
        **access.options(),
        **CONSUMER_OPTIONS,
    )
    producer = AIOKafkaProducer(**access.options(), **PRODUCER_OPTIONS)
    await consumer.start()
    await producer.start()
    num_done = 0
    try:
        while num_done < num_events:
            acks = []
            for partition, batch in (await consumer.getmany(timeout_ms=200)).items():
                for item in batch:
                    place = (partition.topic, partition.partition, item.offset, 0)
                    record = Record(*place, item.key, item.value, tuple(item.headers))
                    out = await insert_plainly(connection, record, ("allocations", "charges"))
                    acks.append(
                        await producer.send(
                            prefix + out.topic, out.value, out.key, headers=list(out.headers)
                        )
                    )
            if acks:
                await asyncio.gather(*acks)
                await consumer.commit()
                num_done += len(acks)
    finally:
        await producer.stop()
        await consumer.stop()
        await connection.close()


if __name__ == "__main__":
    main()
