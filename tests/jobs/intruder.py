"""What a job can do with all that it is given: its environment and its pod's directory.

Run on the platform as an ordinary job; writes what succeeded to the file named in `REPORT`.
"""

import asyncio
import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import asyncpg
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest

from drivetrain_schemas.topics import TOPICS

SPEC = json.loads((Path(os.environ["DRIVETRAIN_POD_DIRECTORY"]) / "spec.json").read_text())
KAFKA = SPEC["kafka"]
LOGIN = {
    "bootstrap_servers": KAFKA["bootstrap_servers"],
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": KAFKA["username"],
    "sasl_plain_password": KAFKA["password"],
}


async def may_write(topic: str) -> bool:
    producer = AIOKafkaProducer(**LOGIN)
    await producer.start()
    try:
        await producer.send_and_wait(KAFKA["topic_prefix"] + topic, b"forged")
        return True
    except TopicAuthorizationFailedError:
        return False
    finally:
        await producer.stop()


async def readable() -> list[str]:
    client = AIOKafkaClient(**LOGIN)
    await client.bootstrap()
    topics = [(KAFKA["topic_prefix"] + topic.name, [(0, 0, 1000)]) for topic in TOPICS]
    answer = await client.send(client.get_random_node(), FetchRequest(100, 0, 1_000_000, 0, topics))
    await client.close()
    refused = TopicAuthorizationFailedError.errno
    return [topic for topic, parts in answer.topics for part in parts if part[1] != refused]


async def may_log_in(user: str, password: str) -> bool:
    address = os.environ["POSTGRES_ADDRESS"]
    try:
        await asyncpg.connect(f"postgresql://{user}:{password}@{address}")
        return True
    except asyncpg.InvalidAuthorizationSpecificationError:
        return False


def asked_template() -> dict[str, object]:
    """Ask for a pod of our own making: another attempt, where the launcher would put it."""
    own = Path(os.environ["DRIVETRAIN_POD_DIRECTORY"])
    place = own.parents[1] / "2" / own.name
    place.mkdir(parents=True)
    shutil.copy(own / "spec.json", place)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["TEMPLATE_SOCKET"])
        with suppress(BrokenPipeError):  # refused before it was read
            connection.sendall(json.dumps({"directory": str(place)}).encode() + b"\n")
        answer = json.loads(connection.makefile().readline())
    return {"pid": os.getpid(), "answer": answer, "files": sorted(os.listdir(place))}


async def attempts() -> dict[str, object]:
    users = ("drivetrain", "pod", "reader", "scheduler", "gateway", "cost")
    return {
        "environment": dict(os.environ),
        "spec": SPEC,
        "written": [topic.name for topic in TOPICS if await may_write(topic.name)],
        "read": await readable(),
        "template": asked_template(),
        "logged_in": [user for user in users if await may_log_in(user, KAFKA["password"])],
    }


Path(os.environ["REPORT"]).write_text(json.dumps(asyncio.run(attempts())))
