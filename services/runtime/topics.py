"""`python -m services.runtime.topics`: create every topic of `drivetrain_schemas.topics`.

Topics that exist are left as they are; partition counts are fixed at creation, because a key must
stay on its partition. Exit codes: 0 done, 1 Kafka does not answer, 2 an invalid setting, which is
named.
"""

import asyncio
import sys

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from pydantic import SecretStr

from drivetrain_schemas.topics import DAY_MS, FOR_EVER, TOPICS, Topic
from services.runtime import logs
from services.runtime.errors import ConfigurationError, KafkaUnavailable, TemporaryError
from services.runtime.kafka_access import KafkaAccess, why
from services.runtime.settings import Settings, from_process

log = logs.get()

# The minimum number of segments of a topic's records.
SEGMENTS_KEPT = 4


class TopicSettings(Settings):
    """Only the Kafka part is used. The settings that services require are optional here."""

    postgres_dsn: SecretStr | None = None  # type: ignore[assignment]


def new_topic(topic: Topic, prefix: str, replication_factor: int) -> NewTopic:
    """The broker's form of a declared topic."""
    return NewTopic(
        name=prefix + topic.name,
        num_partitions=topic.partitions,
        replication_factor=replication_factor,
        topic_configs={
            "cleanup.policy": "delete",
            "retention.ms": str(topic.retention_ms),
            # Only closed segments are deleted: with Kafka's seven days an hour would be a week.
            "segment.ms": str(_segment_ms(topic)),
            "message.timestamp.type": "LogAppendTime",
            # A parked record is the original with additional headers.
            "max.message.bytes": "2000000" if topic.name.startswith("parked.") else "1000000",
            "min.insync.replicas": str(2 if replication_factor > 2 else 1),
        },
    )


def _segment_ms(topic: Topic) -> int:
    if topic.retention_ms == FOR_EVER:
        return 7 * DAY_MS
    return min(7 * DAY_MS, topic.retention_ms // SEGMENTS_KEPT)


async def create_topics(access: KafkaAccess, prefix: str, replication_factor: int = 1) -> list[str]:
    """Create what is missing; returns the names created. Raises TemporaryError."""
    admin = AIOKafkaAdminClient(**access.options())
    created = []
    try:
        await admin.start()
        present = set(await admin.list_topics())
        missing = [topic for topic in TOPICS if prefix + topic.name not in present]
        if missing:
            answer = await admin.create_topics(
                [new_topic(topic, prefix, replication_factor) for topic in missing]
            )
            for name, code, *_ in answer.topic_errors:
                if code == 0:
                    created.append(name)
                elif code != TopicAlreadyExistsError.errno:
                    raise ConfigurationError(f"topic {name}: {for_code(code).__name__}")
    except (KafkaError, OSError) as error:
        raise KafkaUnavailable(await why(access, error)) from error
    finally:
        await admin.close()
    return created


def main() -> int:
    logs.configure("topics")
    try:
        settings = from_process(TopicSettings)
        created = asyncio.run(
            create_topics(
                KafkaAccess.of(settings), settings.topic_prefix, settings.topic_replication_factor
            )
        )
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except TemporaryError as error:
        print(error, file=sys.stderr)
        return 1
    log.info("topics created", created=created)
    return 0


if __name__ == "__main__":
    sys.exit(main())
