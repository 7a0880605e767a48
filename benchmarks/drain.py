"""The utilisation of 64 slots by 10,000 jobs of one second each.

The jobs are submitted through Kafka while the first already run. Busy: the time for which a slot's
pod was alive, of all time from the first grant to the last release; the rest is the scheduler's
overhead: noticing an end, recording it, granting the slot again and launching. Pods are simulated;
everything else is real, in one process.
"""

import asyncio
import logging
import tempfile
from pathlib import Path

from benchmarks.report import Row, options, publish
from benchmarks.scheduler_load import (
    TimedPods,
    nodes,
    records,
    scheduler,
    send,
    submission,
    until,
)
from services.runtime import logs
from services.runtime.kafka_access import KafkaAccess
from services.standalone.embedded import running_kafka, running_postgres

TITLE = "Slots kept busy by short jobs"
MEASURES = (
    "services/scheduler/core",
    "services/scheduler/endings.py",
    "services/scheduler/loop.py",
    "services/scheduler/pods.py",
    "services/scheduler/state.py",
    "services/scheduler/transitions.py",
)
NOTES = """
The scheduler alone, over Kafka and Postgres, with simulated pods that start at once: a real pod's
start ([above](#a-jobs-start-python--m-benchmarksjob_start)) is not in it. A slot whose pod has
ended waits for the rest of the current round and one round more. With the cores busy with other
work rounds are several times slower.
"""

TARGET = 0.95
NUM_NODES = 8
SECONDS = 1.0
PREFIX = "drain."


def main() -> None:
    given = options("drain", "Slots kept busy by short jobs")
    logs.configure("bench", "error")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    rows = asyncio.run(measure(256 if given.quick else 10_000))
    publish(rows, given, ["aiokafka", "asyncpg"])


async def measure(num_jobs: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            running_postgres(folder / "postgres") as postgres,
            running_kafka(folder / "kafka") as broker,
        ):
            access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
            held, span = await drain(access, postgres.dsn, num_jobs)
    num_slots = NUM_NODES * 8
    alive = num_jobs * SECONDS
    return [
        row("drain.alive", "slots with a pod alive", alive, span, num_slots, num_jobs),
        row("drain.held", "slots held by an allocation", held, span, num_slots, num_jobs),
    ]


def row(name: str, what: str, used: float, span: float, num_slots: int, num_jobs: int) -> Row:
    busy = used / (span * num_slots)
    return Row(
        id=name,
        what=f"{what}, {num_jobs:,} jobs of {SECONDS:.0f} s on {num_slots} slots",
        ours=f"{100 * busy:.1f} % of {span:.1f} s",
        peer=f"100 % ({num_jobs * SECONDS / num_slots:.1f} s)",
        ratio=busy,
        target=f"at least {TARGET}",
        met=busy >= TARGET,
    )


async def drain(access: KafkaAccess, dsn: str, num_jobs: int) -> tuple[float, float]:
    """Slot seconds that were held, and the seconds from the first grant to the last release."""
    async with scheduler(access, dsn, PREFIX, nodes(NUM_NODES), TimedPods(SECONDS)) as process:
        await send(access, records(PREFIX, [submission(f"r{index}") for index in range(num_jobs)]))
        await until(
            process, "select count(*) = $1 from jobs where finished_at is not null", num_jobs
        )
        async with process.platform.database.connection() as connection:
            found = await connection.fetchrow(
                """select extract(epoch from sum(released_at - granted_at)) as held,
                    extract(epoch from max(released_at) - min(granted_at)) as span
                from allocations"""
            )
    assert found is not None
    return float(found["held"]), float(found["span"])


if __name__ == "__main__":
    main()
