"""Small batches that unpack to a gigabyte, on the topics that clients may write."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator

from drivetrain_schemas.topics import COMMANDS_JOBS, LOGS, METRICS, REPORTS
from services.runtime.decompression import MAX_BATCH_BYTES
from services.runtime.kafka_access import KafkaAccess
from services.runtime.parking import parked_fact
from services.runtime.topics import create_topics
from tests.batches import Packed, bomb
from tests.integration.runtime.cost import cost, releases
from tests.platform_service import produce, read_events, read_topic, running

ROOT = Path(__file__).parents[3]
# The batch unpacked, up to three times while it is decoded, and what the fetch itself holds.
MOST_GROWTH_BYTES = 4 * MAX_BATCH_BYTES
# What a topic takes is 1 MB: as much of each as fits. A gigabyte of every codec is in
# tests/unit/runtime/test_decompression.py.
UNPACKED_BYTES = {"zstd": 1 << 30, "gzip": 900 << 20, "lz4": 200 << 20, "snappy": 19 << 20}
FITS = {"snappy"}


@pytest.fixture(scope="module")
def bombs() -> Mapping[str, bytes]:
    return {codec: bomb(codec, num_bytes) for codec, num_bytes in UNPACKED_BYTES.items()}


async def drop(
    kafka: KafkaAccess,
    topics: Sequence[str],
    bombs: Mapping[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of each codec on each topic."""
    monkeypatch.setattr(message_accumulator, "DefaultRecordBatchBuilder", Packed)
    for codec, body in bombs.items():
        monkeypatch.setattr(Packed, "body", body, raising=False)
        async with AIOKafkaProducer(
            **{**kafka.options(), "request_timeout_ms": 60_000}, compression_type=codec
        ) as producer:
            for topic in topics:
                await producer.send_and_wait(topic, b"", key=None)
    monkeypatch.undo()


async def read_apart(kafka: KafkaAccess, topics: Sequence[str], num_records: int) -> Any:
    """What a process of its own reads, and what it costs it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.runtime.reader", *topics),
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "BOOTSTRAP": kafka.bootstrap_servers,
            "USERNAME": kafka.username or "",
            "PASSWORD": kafka.password or "",
            "NUM_RECORDS": str(num_records),
        },
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return json.loads(out.splitlines()[-1])


@pytest.mark.heavy
async def test_bombs_of_every_codec_cost_their_readers_a_bounded_memory(
    kafka: KafkaAccess,
    topic_prefix: str,
    bombs: Mapping[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await create_topics(kafka, topic_prefix)
    topics = [topic_prefix + it.name for it in (COMMANDS_JOBS, METRICS, LOGS, REPORTS)]
    await drop(kafka, topics, bombs, monkeypatch)
    read = await read_apart(kafka, topics, len(topics) * len(bombs))
    assert all(read["problems"]), "each record says why it is not decoded"
    assert sum("unpacks to more than" in it for it in read["problems"]) == len(topics) * (
        len(bombs) - len(FITS)
    )
    assert read["growth_bytes"] < MOST_GROWTH_BYTES


@pytest.mark.heavy
async def test_a_service_parks_bombs_and_handles_what_follows_them(
    kafka: KafkaAccess,
    postgres_dsn: str,
    topic_prefix: str,
    bombs: Mapping[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = await cost(kafka, postgres_dsn, topic_prefix)
    service = replace(service, name="gateway", package="services.cost")  # it parks events.jobs
    await drop(kafka, [topic_prefix + "events.jobs"], bombs, monkeypatch)
    (event,) = releases(1)
    await produce(kafka, topic_prefix, event)
    async with running(service):
        parked = await read_topic(kafka, topic_prefix + "parked.gateway", at_least=len(bombs))
        await read_events(kafka, topic_prefix + "events.charges", at_least=1)
    assert {parked_fact(record, "reason") for record in parked} == {"undecodable"}
    whole = [it for it in parked if "unpacks to more" in parked_fact(it, "detail")]
    assert len(whole) == len(bombs) - len(FITS)
    for record in whole:
        assert any(body in (record.value or b"") for body in bombs.values()), "the bytes are kept"
