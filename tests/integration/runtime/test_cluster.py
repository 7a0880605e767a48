"""Three real brokers: a service that outlives each of them, and topics that are as declared."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.topics import DAY_MS
from services.runtime.bus import OutRecord
from services.runtime.errors import TemporaryError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.topics import EXIT_DIFFERS, create_topics
from services.standalone.parts import base_environment
from tests.integration.runtime.cost import cost, releases, until_charged
from tests.platform_service import produce, running
from tests.running_cluster import RunningCluster, running_kafka_cluster

pytestmark = pytest.mark.heavy

NUM_EVENTS = 30


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with running_kafka_cluster(directory) as started:
        yield started


@pytest.fixture
def access(cluster: RunningCluster) -> KafkaAccess:
    return KafkaAccess(cluster.bootstrap_servers, cluster.username, cluster.password)


async def test_every_broker_is_killed_and_nothing_is_lost_or_doubled(
    cluster: RunningCluster, access: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    """Also two at once: then a write waits until two of three hold it."""
    service = await cost(access, postgres_dsn, topic_prefix, copies=3)
    events = releases(NUM_EVENTS)
    first, second, third = cluster.children
    async with running(service):
        for number, killed in enumerate([(first,), (second, third)]):
            part = events[number * 15 : number * 15 + 15]
            back = asyncio.gather(*(child.kill_and_wait_ready() for child in killed))
            await _until_produced(access, topic_prefix, part)
            await back
        charges = await until_charged(access, topic_prefix, [event.event_id for event in events])
    unique = {event.event_id: event for event in charges}
    causes = [event.causation_id for event in unique.values()]
    assert sorted(causes) == sorted(event.event_id for event in events)
    numbers = defaultdict(list)
    for event in unique.values():
        numbers[event.payload.key].append(event.seq)
    for key, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), key


async def _until_produced(access: KafkaAccess, prefix: str, events: Sequence[Event[Any]]) -> None:
    """As outside producers do: the same events again until all are acknowledged."""
    while True:
        try:
            return await produce(access, prefix, *events)
        except TemporaryError as error:
            print(f"again: {error!r}")


async def test_topics_that_differ_are_told_and_grow_only_where_the_order_stays(
    access: KafkaAccess, topic_prefix: str
) -> None:
    """Made before with fewer partitions, one of them written to, and with other settings."""
    empty, written, other = (
        topic_prefix + it for it in ("commands.jobs", "events.jobs", "metrics")
    )
    admin = AIOKafkaAdminClient(**access.options())
    await admin.start()
    configs = {"retention.ms": "1000"}
    try:
        await admin.create_topics(
            [NewTopic(empty, 2, 3), NewTopic(written, 2, 3), NewTopic(other, 4, 1, None, configs)]
        )
        publisher = KafkaPublisher(access, "tests")
        await publisher.publish([OutRecord(written, b"key", b"value")])
        await publisher.close()
        await create_topics(access, topic_prefix, 3)
        # The brokers hear of it one after the other.
        async with asyncio.timeout(30):
            while await _num_partitions(admin, empty) != 4:
                await asyncio.sleep(0.1)
        assert await _num_partitions(admin, written) == 2
    finally:
        await admin.close()

    code, shown = await _check(access, topic_prefix)
    assert code == EXIT_DIFFERS
    found = {tuple(line.split()) for line in shown if not line.startswith("    fix: ")}
    assert (written, "partitions", "2", "4") in found
    assert (other, "replication", "factor", "1", "3") in found
    assert (other, "retention.ms", "1000", str(7 * DAY_MS)) in found
    assert not [line for line in found if line[0] == empty and line[1] == "partitions"]
    assert any("a rebuild would read them in any order" in line for line in shown)


async def _num_partitions(admin: Any, topic: str) -> int:
    (described,) = await admin.describe_topics([topic])
    return len(described["partitions"])


async def test_topics_as_declared_pass_the_check(access: KafkaAccess, topic_prefix: str) -> None:
    await create_topics(access, topic_prefix, 3)
    assert await _check(access, topic_prefix) == (0, ["All topics are as declared."])


async def _check(access: KafkaAccess, prefix: str) -> tuple[int | None, list[str]]:
    variables = {
        "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": access.bootstrap_servers,
        "DRIVETRAIN_KAFKA_SASL_USERNAME": access.username or "",
        "DRIVETRAIN_KAFKA_SASL_PASSWORD": access.password or "",
        "DRIVETRAIN_TOPIC_PREFIX": prefix,
        "DRIVETRAIN_TOPIC_REPLICATION_FACTOR": "3",
    }
    command = (sys.executable, "-m", "services.runtime.topics", "--check")
    process = await asyncio.create_subprocess_exec(
        *command, env=base_environment() | variables, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode().splitlines()
