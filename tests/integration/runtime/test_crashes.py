"""A service that is killed, deaf or full of bugs, as a process of its own where that matters."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from services.runtime.bus import OutRecord
from services.runtime.consumer import FailedAtRecord
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.parking import parked_fact
from services.runtime.service import EXIT_AT_RECORD, EXIT_STUCK, Running, Service
from services.runtime.transaction import Tx
from tests.integration.runtime.cost import cost, releases, until_charged
from tests.parked import put_back
from tests.platform_service import (
    parsed,
    produce,
    read_events,
    read_topic,
    running,
    service_environment,
)
from tests.variants import variants

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def spawned(
    kafka: KafkaAccess, dsn: str, prefix: str, fault: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The cost service with a fault, as a process that does not outlive the block."""
    facts = service_environment(kafka, dsn, prefix)
    environment = {f"DRIVETRAIN_{name.upper()}": str(value) for name, value in facts.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.runtime.faulty_cost", fault),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(90):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


FAULTS = [
    "killed-after-inbox",
    "killed-amid-effects",
    "killed-before-commit",
    "killed-after-commit",
]


@pytest.mark.parametrize("fault", variants(FAULTS))
async def test_killed_at_any_point_of_a_batch_each_event_is_charged_once(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, fault: str
) -> None:
    await cost(kafka, postgres_dsn, topic_prefix)
    *events, last = releases(41)
    await produce(kafka, topic_prefix, *events)
    for _ in range(2):
        async with spawned(kafka, postgres_dsn, topic_prefix, fault) as process:
            assert await process.wait() == -9
        num_handled, num_charged = await counts(postgres_dsn)
        assert num_handled == num_charged, "one transaction"
        assert (num_handled > 1) == (fault == "killed-after-commit"), "of many events"
    await produce(kafka, topic_prefix, last)
    causes = {event.event_id for event in (*events, last)}
    async with spawned(kafka, postgres_dsn, topic_prefix, "none") as process:
        charges = await until_charged(kafka, topic_prefix, causes)
        process.terminate()
        assert await process.wait() == 0
    # A relay killed before it marks sends again, with the same id.
    assert len({event.event_id for event in charges}) == len(causes)
    amounts = {event.payload.charge_id: event.payload.amount_micro_usd for event in charges}
    assert set(await sums(postgres_dsn)) == {sum(amounts.values())}


@pytest.mark.heavy
async def test_a_batch_that_kills_while_it_is_decoded_is_parked_after_three_ends(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    await cost(kafka, postgres_dsn, topic_prefix)
    deadly, *before = releases(12)
    after = releases(24)[12:]
    await produce(kafka, topic_prefix, *before)
    await produce(kafka, topic_prefix, replace(deadly, tenant_id="deadly"))
    await produce(kafka, topic_prefix, *after)
    for _ in range(3):
        async with spawned(kafka, postgres_dsn, topic_prefix, "killed-decoding") as process:
            assert await process.wait() == -9
    async with spawned(kafka, postgres_dsn, topic_prefix, "killed-decoding") as process:
        await until_charged(kafka, topic_prefix, {it.event_id for it in (*before, *after)})
        (parked,) = await read_topic(kafka, topic_prefix + "parked.cost", at_least=1)
        process.terminate()
        assert await process.wait() == 0
    assert parked_fact(parked, "reason") == "crash_loop"
    assert b"deadly" in (parked.value or b"")


async def test_a_bug_at_a_known_record_has_an_exit_code_of_its_own(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    await cost(kafka, postgres_dsn, topic_prefix)
    await produce(kafka, topic_prefix, *releases(20))
    async with spawned(kafka, postgres_dsn, topic_prefix, "bug") as process:
        assert await process.wait() == EXIT_AT_RECORD


async def test_a_consumer_that_went_deaf_ends_the_process_with_code_70(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    await cost(kafka, postgres_dsn, topic_prefix)
    await produce(kafka, topic_prefix, *releases(1))
    async with spawned(kafka, postgres_dsn, topic_prefix, "deaf") as process:
        assert await process.wait() == EXIT_STUCK


async def sums(dsn: str) -> tuple[int, int, int]:
    """What was charged: by the charges, and by the spend of the tenant and of all jobs."""
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow(
            """
            select (select sum(amount_micro_usd)::bigint from cost.charges),
                (select sum(charged_micro_usd)::bigint from cost.spend
                    where subject = '' and isfinite(day)),
                (select sum(charged_micro_usd)::bigint from cost.spend
                    where subject like 'job_%' and not isfinite(day))
            """
        )
    finally:
        await connection.close()
    return row[0], row[1], row[2]


async def counts(dsn: str) -> tuple[int, int]:
    """How many events the cost service has in its inbox, and how many charges it made."""
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow(
            "select (select count(*) from cost.inbox), (select count(*) from cost.charges)"
        )
    finally:
        await connection.close()
    return row[0], row[1]


class Bug(Exception):
    """What a handler's bug raises."""


def with_bug(service: Service, tenant_id: str) -> Service:
    """The same service, whose handler crashes on the events of one tenant."""
    handle_batch = service.handle_batch
    assert handle_batch is not None

    async def buggy(tx: Tx, events: Sequence[Event[Any]]) -> None:
        await handle_batch(tx, events)
        if any(event.tenant_id == tenant_id for event in events):
            raise Bug

    return replace(service, handle_batch=buggy)


async def test_a_deadly_event_is_parked_after_three_crashes_and_replay_brings_it_back(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    service = await cost(kafka, postgres_dsn, topic_prefix)
    deadly, after, *elsewhere = releases(6)
    deadly = replace(deadly, tenant_id="deadly")
    await produce(kafka, topic_prefix, deadly, after, *elsewhere)
    buggy = with_bug(service, "deadly")
    for _ in range(3):
        with pytest.raises(ExceptionGroup) as crashed:
            await Running(buggy, asyncio.Event()).run()
        assert crashed.group_contains(FailedAtRecord, match="Bug")
    want = {event.event_id for event in (after, *elsewhere)}
    async with running(buggy):
        charges = await until_charged(kafka, topic_prefix, want)
        (parked,) = await read_topic(kafka, topic_prefix + "parked.cost", at_least=1)
    assert {event.causation_id for event in charges} == want
    assert parked_fact(parked, "reason") == "crash_loop"
    assert parsed([parked])[0].event_id == deadly.event_id
    async with running(service):  # the bug is mended
        publisher = KafkaPublisher(kafka, "tests")
        await publisher.publish([put_back(parked)])
        await publisher.close()
        charges = await until_charged(kafka, topic_prefix, want | {deadly.event_id})
    assert {event.causation_id for event in charges} == want | {deadly.event_id}
    assert all(isinstance(event.payload, ChargeRecorded) for event in charges)


async def test_a_record_as_large_as_the_broker_takes_is_parked_and_stops_nothing(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    """Parked with its headers it is larger than what came in; its outbox row must still leave."""
    service = await cost(kafka, postgres_dsn, topic_prefix)
    service = replace(service, name="gateway", package="services.cost")  # it parks events.jobs
    large = OutRecord(topic_prefix + "events.jobs", b"k", b"x" * 999_000)
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish([large])
    await publisher.close()
    (event,) = releases(1, within=timedelta(seconds=9))
    await produce(kafka, topic_prefix, event)
    async with running(service):
        (parked,) = await read_topic(kafka, topic_prefix + "parked.gateway", at_least=1)
        await read_events(kafka, topic_prefix + "events.charges", at_least=1)
    assert parked_fact(parked, "reason") == "too_large"
    assert parked.value == large.value


async def test_a_header_name_of_900_000_nul_bytes_is_parked_and_stops_nothing(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    """Postgres takes no NUL in a text; what replaces it is three bytes, more than Kafka takes."""
    service = await cost(kafka, postgres_dsn, topic_prefix)
    service = replace(service, name="gateway", package="services.cost")  # it parks events.jobs
    topic = topic_prefix + "events.jobs"
    wide = OutRecord(topic, b"k", b"{}", (("\0" * 900_000, b"1"),))
    small = OutRecord(topic, b"k", b"not JSON")
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish([wide, small])
    await publisher.close()
    async with running(service):
        parked = await read_topic(kafka, topic_prefix + "parked.gateway", at_least=2)
    assert [parked_fact(record, "omitted") != "" for record in parked] == [True, False]
    assert parked[1].value == small.value
