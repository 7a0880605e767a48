"""What a user of a broker may do, found out by trying."""

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest

from drivetrain_schemas.topics import TOPICS
from services.runtime.access.kafka import Connection


async def may_write(connection: Connection, prefix: str, topic: str) -> bool:
    producer = AIOKafkaProducer(**connection.options(), enable_idempotence=True, acks="all")
    await producer.start()
    try:
        await producer.send_and_wait(prefix + topic, b"{}")
        return True
    except TopicAuthorizationFailedError:
        return False
    finally:
        await producer.stop()


async def readable(connection: Connection, prefix: str) -> set[str]:
    """The topics whose records the broker hands out; aiokafka's consumer would ask for ever."""
    topics = [(prefix + topic.name, [(0, 0, 1000)]) for topic in TOPICS]
    client = AIOKafkaClient(**connection.options())
    await client.bootstrap()
    try:
        request = FetchRequest(100, 0, 1_000_000, 0, topics)
        answer = await client.send(client.get_random_node(), request)
    finally:
        await client.close()
    return {
        topic.removeprefix(prefix)
        for topic, partitions in answer.topics
        for _number, error_code, *_ in partitions
        if error_code != TopicAuthorizationFailedError.errno
    }


async def may_use_group(connection: Connection, group: str, topic: str) -> bool:
    """Whether its offsets may be read, and with the same right be moved."""
    consumer = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **connection.options())
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.commit({TopicPartition(topic, 0): 0})
        return True
    except GroupAuthorizationFailedError:
        return False
    finally:
        await consumer.stop()
