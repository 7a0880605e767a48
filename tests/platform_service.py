"""Runs a service inside a test, on the real broker and the real Postgres of the session."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, InvalidEvent, encode, parse
from services.runtime.bus import OutRecord, Record
from services.runtime.errors import TemporaryError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource
from services.runtime.service import Running, Service

READ_TOKEN = "a-read-token-of-the-tests"


def service_environment(kafka: KafkaAccess, dsn: str, prefix: str) -> dict[str, Any]:
    """Settings values that point a service at the session's servers."""
    return {
        "kafka_bootstrap_servers": kafka.bootstrap_servers,
        "kafka_sasl_username": kafka.username,
        "kafka_sasl_password": kafka.password,
        "postgres_dsn": dsn,
        "topic_prefix": prefix,
        "object_store_url": "file:///tmp/unused",
        "read_token": READ_TOKEN,
    }


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[Running]:
    """The service, serving; stopped in order at the end."""
    stopping = asyncio.Event()
    process = Running(service, stopping)
    task = asyncio.create_task(process.run())
    try:
        while await process._ready() is not None:
            if task.done():
                task.result()
            await asyncio.sleep(0.05)
        yield process
    finally:
        stopping.set()
        await task


async def produce(kafka: KafkaAccess, prefix: str, *events: Event[Any]) -> None:
    publisher = KafkaPublisher(kafka, "tests")
    try:
        await publisher.publish([out_record(event, prefix) for event in events])
    finally:
        await publisher.close()


async def produce_patiently(kafka: KafkaAccess, prefix: str, *events: Event[Any]) -> None:
    """All of them again until the broker has confirmed all."""
    while True:
        try:
            return await produce(kafka, prefix, *events)
        except (TemporaryError, OSError):
            await asyncio.sleep(0.1)


def out_record(event: Event[Any], prefix: str) -> OutRecord:
    headers, key, value = encode(event)
    return OutRecord(prefix + event.payload.kind.topic.name, key, value, tuple(headers))


async def read_topic(
    kafka: KafkaAccess, topic: str, *, at_least: int, seconds: float = 30.0
) -> list[Record]:
    """Read a topic from its start until `at_least` records are there."""
    group = f"reader-{secrets.token_hex(4)}"
    source = KafkaSource(kafka, group, [topic], member=f"{group}.0", max_records=1000)
    await _started(source, seconds)
    records: list[Record] = []
    try:
        async with asyncio.timeout(seconds):
            while len(records) < at_least:
                for batch in (await source.poll(0.5)).values():
                    records += batch
    finally:
        await source.stop()
    return records


async def _started(source: KafkaSource, seconds: float) -> None:
    """A broker that was killed or frozen just before may need a moment."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await source.start()
                return
            except TemporaryError:
                await asyncio.sleep(0.2)


async def read_events(
    kafka: KafkaAccess, topic: str, *, at_least: int, seconds: float = 30.0
) -> list[Event[Payload]]:
    records = await read_topic(kafka, topic, at_least=at_least, seconds=seconds)
    return parsed(records)


def parsed(records: Sequence[Record]) -> list[Event[Payload]]:
    events = []
    for record in records:
        try:
            events.append(parse(record.headers, record.value))
        except InvalidEvent:
            continue
    return events
