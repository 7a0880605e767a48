"""How long a consumer stands still when a broker of three is killed, and what it loses.

A producer writes to every partition all the time. Each failover kills one broker with `kill -9`, in
turn; the time runs from the kill until a record that was sent after it has been read on every
partition, so it holds the producer's recovery too. The next broker is killed once all replicas are
in sync again. The peer is aiokafka's consumer with its own defaults, in the same failovers. At the
end every record sent must have been read by ours, in the order of its key; `--failovers 1000` takes
most of a day. The exit code of a whole run is 1 where a target is not met.
"""

import asyncio
import contextlib
import logging
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from benchmarks.report import Row, arguments, options_of, publish
from services.runtime import logs
from services.runtime.bus import OutRecord, PublishFailed
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource
from tests.running_cluster import RunningCluster, running_kafka_cluster

TITLE = "A broker of three is killed"
MEASURES = (
    "services/runtime/kafka_access.py",
    "services/runtime/kafka_publisher.py",
    "services/runtime/kafka_source.py",
    "services/standalone/kafka_cluster.py",
)
NOTES = """
Each broker in turn with `kill -9` while a producer writes to every partition; from the kill until
a record sent after it has been read on every partition, so the producer's recovery is in it. The
clients of the runtime alone: no service, no Postgres. Most of the time is Kafka's: the controller
waits 3 s for a broker that is silent before it names other leaders. `make failovers
FAILOVERS=1000` takes most of a day.
"""

TOPIC = "failover"
NUM_PARTITIONS = 4
# Enough of them for every partition.
KEYS = tuple(f"key-{number}".encode() for number in range(16))
INTERVAL_S = 0.1
LIMIT_S = 300.0
FAILOVERS = 20
TARGET_S = 30.0


@dataclass(slots=True)
class Reader:
    """What one consumer has read: the numbers of each key, in the order read."""

    numbers: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))

    def took(self, key: bytes | None, value: bytes | None) -> None:
        self.numbers[key or b""].append(int(value or b"-1"))

    def has_read(self, number: int) -> bool:
        """A record of this number or a later one of every key."""
        return all(self.numbers[key] and self.numbers[key][-1] >= number for key in KEYS)


@dataclass(slots=True)
class Writer:
    """`next` is the number of the records that are sent next, one of each key."""

    publisher: KafkaPublisher
    next: int = 0

    async def run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            number = str(self.next).encode()
            self.next += 1
            await self._publish([OutRecord(TOPIC, key, number) for key in KEYS])
            await asyncio.sleep(INTERVAL_S)

    async def _publish(self, records: Sequence[OutRecord]) -> None:
        """As the outbox relay does: what is not acknowledged is sent again, before what follows."""
        while records:
            try:
                await self.publisher.publish(records)
                return
            except PublishFailed as failed:
                pairs = zip(records, failed.deliveries, strict=True)
                records = [record for record, it in pairs if it.outcome.value != "acknowledged"]
                await asyncio.sleep(INTERVAL_S)


def main() -> int:
    parser = arguments("Recovery of a consumer from a broker's death")
    parser.add_argument("--failovers", type=int, default=FAILOVERS, help="brokers killed")
    wanted = parser.parse_args()
    number = 1 if wanted.quick else wanted.failovers
    given = options_of("broker_failover", wanted, is_whole=number >= FAILOVERS)
    logs.configure("bench", "critical")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    rows = asyncio.run(measure(number))
    publish(rows, given, ["aiokafka"])
    return 0 if given.quick or all(row.met for row in rows) else 1


async def measure(num_failovers: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        async with running_kafka_cluster(Path(name)) as cluster:
            access = KafkaAccess(cluster.bootstrap_servers, cluster.username, cluster.password)
            return await fail_over(cluster, access, num_failovers)


async def fail_over(cluster: RunningCluster, access: KafkaAccess, number: int) -> list[Row]:
    ours, peer = Reader(), Reader()
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    stopping = asyncio.Event()
    async with admin_of(access) as admin:
        configs = {"min.insync.replicas": "2"}
        await admin.create_topics([NewTopic(TOPIC, NUM_PARTITIONS, 3, None, configs)])
        writer = Writer(KafkaPublisher(access, "bench"))
        work = [
            asyncio.create_task(writer.run(stopping)),
            asyncio.create_task(read_ours(access, ours, stopping)),
            asyncio.create_task(read_peer(access, peer, stopping)),
        ]
        await until(lambda: ours.has_read(0) and peer.has_read(0), work)
        for each in range(number):
            await until_in_sync(admin)
            sent, began = writer.next, time.monotonic()
            back = asyncio.create_task(cluster.children[each % 3].kill_and_wait_ready())
            readers = (("ours", ours), ("peer", peer))
            until_back = [
                note(times[name], began, until(partial(reader.has_read, sent), work))
                for name, reader in readers
            ]
            await asyncio.gather(back, *until_back)
            shown = ", ".join(f"{name} {found[-1]:.1f} s" for name, found in times.items())
            print(f"failover {each + 1} of {number}: {shown}", file=sys.stderr)
        stopping.set()
        await work[0]
        await writer.publisher.close()
        await asyncio.gather(*work[1:])
    return rows(times, ours, writer.next)


async def note(found: list[float], began: float, waiting: Awaitable[None]) -> None:
    await waiting
    found.append(time.monotonic() - began)


async def until(condition: Callable[[], bool], work: Sequence["asyncio.Task[None]"]) -> None:
    """Raises what ended one of the tasks, and TimeoutError."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            for task in work:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def admin_of(access: KafkaAccess) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**access.options())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def until_in_sync(admin: Any) -> None:
    """Every replica of the topic and of the groups' offsets is in sync."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(KafkaError, OSError):
                topics = await admin.describe_topics([TOPIC, "__consumer_offsets"])
                found = [len(part["isr"]) for topic in topics for part in topic["partitions"]]
                if found and min(found) == 3:
                    return
            await asyncio.sleep(0.2)


async def read_ours(access: KafkaAccess, reader: Reader, stopping: asyncio.Event) -> None:
    source = KafkaSource(access, "ours", [TOPIC], member="ours.0", max_records=1000)
    await source.start()
    try:
        polled: Any = {}
        while not stopping.is_set() or polled:
            polled = await source.poll(0.5)
            for records in polled.values():
                for record in records:
                    reader.took(record.key, record.value)
            done = {partition: records[-1].offset + 1 for partition, records in polled.items()}
            await source.commit(done)
    finally:
        await source.stop()


async def read_peer(access: KafkaAccess, reader: Reader, stopping: asyncio.Event) -> None:
    options = access.options()
    servers = {"bootstrap_servers": options.pop("bootstrap_servers"), **access.security()}
    consumer = AIOKafkaConsumer(TOPIC, group_id="peer", auto_offset_reset="earliest", **servers)
    await consumer.start()
    try:
        while not stopping.is_set():
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    reader.took(record.key, record.value)
    finally:
        await consumer.stop()


def rows(times: dict[str, list[float]], ours: Reader, num_sent: int) -> list[Row]:
    medians = {name: statistics.median(found) for name, found in times.items()}
    shown = {
        name: f"{medians[name]:.1f} s ({min(found):.1f}-{max(found):.1f})"
        for name, found in times.items()
    }
    number = len(times["ours"])
    firsts = {key: list(dict.fromkeys(found)) for key, found in ours.numbers.items()}
    wanted = list(range(num_sent))
    num_lost = sum(len(set(wanted) - set(firsts.get(key, ()))) for key in KEYS)
    num_moved = sum(found != sorted(found) for found in firsts.values())
    num_again = sum(len(found) - len(set(found)) for found in ours.numbers.values())
    num_records = num_sent * len(KEYS)
    return [
        Row(
            id="failover.recovery",
            what=f"a broker of three is killed: consumer back, median (range) of {number}",
            ours=shown["ours"],
            peer=f"{shown['peer']}, aiokafka's defaults",
            ratio=medians["ours"] / medians["peer"],
            target=f"at most {TARGET_S:.0f} s",
            met=medians["ours"] <= TARGET_S,
        ),
        Row(
            id="failover.lost",
            what=f"of {num_records:,} records: lost, keys out of order (read again)",
            ours=f"{num_lost}, {num_moved} ({num_again})",
            peer="0, 0",
            ratio=float(num_lost + num_moved),
            target="0, 0",
            met=num_lost == num_moved == 0,
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
