"""The checkpoints service on the real broker, the real Postgres and a directory as object store."""

from pathlib import Path

import asyncpg

from drivetrain_schemas.checkpoints import CheckpointCommitted, CheckpointRestored
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.wiring import build
from services.runtime.directory_store import DirectoryStore
from services.runtime.kafka_access import KafkaAccess
from services.runtime.stores import initialise
from services.runtime.topics import create_topics
from tests.events import make_event
from tests.handlers.checkpoints.builders import (
    key_of,
    make_failed,
    make_granted,
    make_queued,
    make_resumed,
    make_written,
    write_checkpoint,
)
from tests.platform_service import produce, read_events, running, service_environment


async def test_checkpoints_are_committed_by_report_and_by_listing_across_a_restart(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, tmp_path: Path
) -> None:
    await create_topics(kafka, topic_prefix)
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("drop schema if exists checkpoints cascade")
    await connection.close()
    environment = service_environment(kafka, postgres_dsn, topic_prefix)
    environment |= {"object_store_url": tmp_path.as_uri(), "list_seconds": 0.2}
    settings = CheckpointsSettings(**environment)
    await initialise(tmp_path.as_uri())
    object_store = DirectoryStore(tmp_path)
    topic = f"{topic_prefix}events.checkpoints"

    await produce(kafka, topic_prefix, make_event(make_queued()), make_event(make_granted()))
    async with running(build(settings)):
        await write_checkpoint(object_store, 10)
        await produce(kafka, topic_prefix, make_event(make_written(10)))
        await read_events(kafka, topic, at_least=1)
        await write_checkpoint(object_store, 20)  # no report of it arrives
        await read_events(kafka, topic, at_least=2)
    await write_checkpoint(object_store, 30)  # the service is down
    async with running(build(settings)):
        await read_events(kafka, topic, at_least=3)
        await produce(
            kafka,
            topic_prefix,
            make_event(make_failed()),
            make_event(make_granted(fence=2)),
            make_event(make_resumed(key_of(30))),
            make_event(make_written(10)),
        )
        events = await read_events(kafka, topic, at_least=4)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    payloads = [event.payload for event in events]
    assert [one.step for one in payloads if isinstance(one, CheckpointCommitted)] == [10, 20, 30]
    assert [one.step for one in payloads if isinstance(one, CheckpointRestored)] == [30]
