"""`python -m services.runtime.topics [--check]`: the topics of `drivetrain_schemas.topics`.

Without `--check`: create what is missing, add partitions where that keeps the order, and log every
other difference. With it: change nothing, and print a table of what differs and the fix. What may
change and why: `topic_differences`. Exit codes: 0 done, or nothing differs; 1 Kafka does not
answer; 2 an invalid setting, which is named; 3 (`--check`) something differs.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from pydantic import SecretStr

from drivetrain_schemas.topics import DAY_MS, FOR_EVER, TOPICS, Topic
from services.runtime import logs
from services.runtime.errors import ConfigurationError, KafkaUnavailable, TemporaryError
from services.runtime.kafka_access import KafkaAccess, why
from services.runtime.settings import Settings, from_process
from services.runtime.topic_differences import PARKED, Difference, Found, Wanted, differences

log = logs.get()

# The minimum number of segments of a topic's records.
SEGMENTS_KEPT = 4
MAX_SEGMENT_BYTES = 64 * 1024**2
EXIT_DIFFERS = 3


class TopicSettings(Settings):
    """Only the Kafka part is used. The settings that services require are optional here."""

    postgres_dsn: SecretStr | None = None  # type: ignore[assignment]


def wanted_topic(topic: Topic, prefix: str, replication_factor: int) -> Wanted:
    """What the brokers are to hold for a declared topic."""
    bounds = {
        "retention.bytes": str(topic.retention_bytes),
        # Only closed segments are deleted: with Kafka's own they would hold up to 1 GB more.
        "segment.bytes": str(min(MAX_SEGMENT_BYTES, topic.retention_bytes // SEGMENTS_KEPT)),
    }
    return Wanted(
        name=prefix + topic.name,
        num_partitions=topic.partitions,
        replication_factor=replication_factor,
        configs={
            "cleanup.policy": "delete",
            "retention.ms": str(topic.retention_ms),
            # Only closed segments are deleted: with Kafka's seven days an hour would be a week.
            "segment.ms": str(_segment_ms(topic)),
            "message.timestamp.type": "LogAppendTime",
            # A parked record is the original with additional headers.
            "max.message.bytes": "2000000" if topic.name.startswith(PARKED) else "1000000",
            "min.insync.replicas": str(2 if replication_factor > 2 else 1),
            **(bounds if topic.retention_bytes > 0 else {}),
        },
        is_keyed=not topic.name.startswith(PARKED),
        is_kept_for_ever=topic.retention_ms == FOR_EVER,
    )


def _segment_ms(topic: Topic) -> int:
    if topic.retention_ms == FOR_EVER:
        return 7 * DAY_MS
    return min(7 * DAY_MS, topic.retention_ms // SEGMENTS_KEPT)


async def create_topics(access: KafkaAccess, prefix: str, replication_factor: int = 1) -> list[str]:
    """Create what is missing, and let grow what may; returns the names created.

    Raises TemporaryError, and ConfigurationError for what the brokers refuse.
    """
    async with _connected(access) as admin:
        wanted = [wanted_topic(topic, prefix, replication_factor) for topic in TOPICS]
        present = set(await admin.list_topics())
        created = await _create(admin, [it for it in wanted if it.name not in present])
        try:
            found = await _found(admin, access, [it for it in wanted if it.name in present])
        except ConfigurationError as error:
            # A login that may create topics and not describe them is enough to start.
            log.warning("topics are not compared with their declaration", error=str(error))
            return created
        for it in wanted:
            if it.name in found:
                await _reconcile(admin, differences(it, found[it.name]))
    return created


async def check_topics(
    access: KafkaAccess, prefix: str, replication_factor: int = 1
) -> list[Difference]:
    """Every difference; nothing is changed. Raises TemporaryError."""
    async with _connected(access) as admin:
        wanted = [wanted_topic(topic, prefix, replication_factor) for topic in TOPICS]
        found = await _found(admin, access, wanted)
    return [row for it in wanted for row in differences(it, found.get(it.name))]


@asynccontextmanager
async def _connected(access: KafkaAccess) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**access.options())
    try:
        await admin.start()
        yield admin
    except (KafkaError, OSError) as error:
        raise KafkaUnavailable(await why(access, error)) from error
    finally:
        await admin.close()


async def _create(admin: Any, missing: Sequence[Wanted]) -> list[str]:
    if not missing:
        return []
    topics = [
        NewTopic(it.name, it.num_partitions, it.replication_factor, topic_configs=dict(it.configs))
        for it in missing
    ]
    answer = await admin.create_topics(topics)
    created = []
    for name, code, *_ in answer.topic_errors:
        if code == 0:
            created.append(name)
        elif code != TopicAlreadyExistsError.errno:
            raise ConfigurationError(f"topic {name}: {for_code(code).__name__}")
    return created


async def _reconcile(admin: Any, rows: Sequence[Difference]) -> None:
    for row in rows:
        if row.grows:
            await admin.create_partitions({row.topic: NewPartitions(int(row.wanted))})
            log.info("partitions added", topic=row.topic, before=row.found, now=row.wanted)
        else:
            log.warning(
                "topic differs from its declaration",
                topic=row.topic,
                setting=row.setting,
                found=row.found,
                wanted=row.wanted,
                fix=row.fix,
            )


async def _found(admin: Any, access: KafkaAccess, wanted: Sequence[Wanted]) -> dict[str, Found]:
    """By name, those that exist."""
    present = set(await admin.list_topics())
    names = [it.name for it in wanted if it.name in present]
    if not names:
        return {}
    configs = await _configs(admin, names)
    partitions = {it["topic"]: it["partitions"] for it in await admin.describe_topics(names)}
    wants = {it.name: it.num_partitions for it in wanted}
    # What is in a topic matters only where partitions are to be added.
    few = {name: len(partitions[name]) for name in names if len(partitions[name]) < wants[name]}
    empty = await _empty(access, few) if few else frozenset()
    return {
        name: Found(
            num_partitions=len(partitions[name]),
            replication_factor=min(len(it["replicas"]) for it in partitions[name]),
            configs=configs[name],
            is_empty=name in empty,
        )
        for name in names
    }


async def _configs(admin: Any, names: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found = {}
    for answer in await admin.describe_configs(resources):
        for code, message, _type, name, entries in answer.resources:
            if code:
                raise ConfigurationError(f"topic {name}: {for_code(code).__name__} {message}")
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found


async def _empty(access: KafkaAccess, topics: Mapping[str, int]) -> frozenset[str]:
    """Those that hold no record at present; `topics`: their numbers of partitions."""
    consumer = AIOKafkaConsumer(enable_auto_commit=False, **access.options())
    await consumer.start()
    try:
        places = [
            TopicPartition(name, each) for name, many in topics.items() for each in range(many)
        ]
        begins = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
    finally:
        await consumer.stop()
    holding = {place.topic for place in places if begins[place] < ends[place]}
    return frozenset(topics.keys() - holding)


def table(rows: Sequence[Difference]) -> str:
    """One line for each difference, its fix below it."""
    if not rows:
        return "All topics are as declared."
    names = ("topic", "setting", "found", "wanted")
    cells = [names, *((row.topic, row.setting, row.found, row.wanted) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    fixes = [f"    fix: {row.fix}" for row in rows]
    pairs = zip(lines[1:], fixes, strict=True)
    return "\n".join([lines[0], *(line for pair in pairs for line in pair)])


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m services.runtime.topics")
    parser.add_argument("--check", action="store_true", help="print what differs, change nothing")
    given = parser.parse_args(list(arguments))
    logs.configure("topics")
    try:
        settings = from_process(TopicSettings)
        access = KafkaAccess.of(settings)
        options = (settings.topic_prefix, settings.topic_replication_factor)
        if given.check:
            rows = asyncio.run(check_topics(access, *options))
            print(table(rows))
            return EXIT_DIFFERS if rows else 0
        created = asyncio.run(create_topics(access, *options))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except TemporaryError as error:
        print(error, file=sys.stderr)
        return 1
    log.info("topics created", created=created)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
