"""What the service needs becomes unavailable for real, and comes back: no event lost or doubled."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from services.runtime import kafka_publisher, kafka_source
from services.runtime.bus import Outcome, OutRecord, PublishFailed
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.topics import create_topics
from services.standalone.embedded import RunningKafka, running_kafka, running_postgres
from tests.integration.runtime.cost import cost, releases, until_charged
from tests.platform_service import produce, running

# Shorter than the platform's own, so that a few seconds outlast them: the least Kafka allows.
SESSION_SECONDS = 6
OUTAGE_SECONDS = SESSION_SECONDS + 3


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningKafka]:
    """A broker of this module's own, to be stopped."""
    async with running_kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def access(broker: RunningKafka) -> KafkaAccess:
    return KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)


@asynccontextmanager
async def frozen(broker: RunningKafka) -> AsyncIterator[None]:
    """The broker holds its connections and answers nothing."""
    pid = broker.child.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_an_acknowledgement_is_not_waited_for_for_ever(
    broker: RunningKafka, access: KafkaAccess, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_topics(access, topic_prefix)
    publisher = KafkaPublisher(access, "tests")
    record = OutRecord(f"{topic_prefix}events.alerts", b"k", b"1")
    try:
        await publisher.publish([record])  # a new topic has no leader for a moment
        monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 1.0)
        async with frozen(broker):
            with pytest.raises(PublishFailed) as failed:
                await publisher.publish([record])
            assert [it.outcome for it in failed.value.deliveries] == [Outcome.UNKNOWN]
        monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 15.0)
        await publisher.publish([record])
    finally:
        await publisher.close()


@pytest.mark.heavy
async def test_a_frozen_broker_costs_time_and_nothing_else(
    broker: RunningKafka,
    access: KafkaAccess,
    postgres_dsn: str,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 1.5)
    monkeypatch.setattr(kafka_source, "COMMIT_SECONDS", 1.5)
    monkeypatch.setitem(kafka_source.CONSUMER_OPTIONS, "session_timeout_ms", SESSION_SECONDS * 1000)
    service = await cost(access, postgres_dsn, topic_prefix)
    before, after, emitted = releases(9)[:3], releases(9)[3:8], releases(9)[8]
    async with running(service) as process:
        await produce(access, topic_prefix, *before)
        await until_charged(access, topic_prefix, [event.event_id for event in before])
        async with frozen(broker):
            # What is emitted meanwhile waits in the outbox.
            (handler,) = [
                it for kind, it in service.handlers.items() if kind is type(emitted.payload)
            ]
            async with process.platform.database.transaction() as tx:
                await handler(tx, emitted)
            await asyncio.sleep(OUTAGE_SECONDS)
        monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 15.0)
        monkeypatch.setattr(kafka_source, "COMMIT_SECONDS", 15.0)
        await produce(access, topic_prefix, *after)
        causes = [event.event_id for event in (*before, *after, emitted)]
        charges = await until_charged(access, topic_prefix, causes)
    assert len({event.event_id for event in charges}) == len(causes)
    firsts = list({event.event_id: event.seq for event in charges}.values())
    assert firsts == sorted(firsts)


async def test_postgres_killed_and_back_costs_time_and_nothing_else(
    access: KafkaAccess, topic_prefix: str, tmp_path: Path
) -> None:
    async with running_postgres(tmp_path) as postgres:
        service = await cost(access, postgres.dsn, topic_prefix)
        events = releases(30)
        async with running(service):
            for number, event in enumerate(events):
                if number in (10, 20):
                    postgres.child.kill()
                await produce(access, topic_prefix, event)
            causes = [event.event_id for event in events]
            charges = await until_charged(access, topic_prefix, causes)
    assert len({event.event_id for event in charges}) == len(events)
    assert {event.seq for event in charges} == set(range(1, len(events) + 1))
