"""The Python example against a real broker: its record is read, the answer to it is found."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, encode, parse
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import (
    JobQueued,
    JobRequestRejected,
    JobSpec,
    JobSubmit,
    RejectionReason,
)
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics

EXAMPLE = Path(__file__).parents[3] / "examples" / "03-submit-by-event"
PREFIX = "drivetrain."


@asynccontextmanager
async def submitted(
    kafka: KafkaAccess, home: Path, request_id: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Event[Payload]]]:
    """The example at work, and the command that it wrote."""
    await create_topics(kafka, PREFIX)
    access = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "username": kafka.username,
        "password": kafka.password,
    }
    (home / "connection.json").write_text(json.dumps({"kafka": access}))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(str(EXAMPLE / "submit.py"), str(EXAMPLE / "job.json"), request_id),
        env={**os.environ, "DRIVETRAIN_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process, await command(kafka, job_id_for("default", request_id))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def command(kafka: KafkaAccess, job_id: str) -> Event[Payload]:
    consumer = AIOKafkaConsumer(
        f"{PREFIX}commands.jobs", **kafka.options(), auto_offset_reset="earliest"
    )
    async with consumer:
        async for record in consumer:
            if record.key == job_id.encode():
                return parse(record.headers, record.value, timestamp_ms=record.timestamp)
    raise AssertionError("a consumer never ends")


async def send(kafka: KafkaAccess, payload: Payload, cause: str) -> None:
    event = Event("answer", "/tests", datetime.now(UTC), "default", payload)
    headers, key, value = encode(replace(event, causation_id=cause))
    async with AIOKafkaProducer(**kafka.options()) as producer:
        await producer.send_and_wait(f"{PREFIX}events.jobs", value, key, headers=headers)


async def test_an_accepted_request(kafka: KafkaAccess, tmp_path: Path) -> None:
    async with submitted(kafka, tmp_path, "request-1") as (process, event):
        assert isinstance(event.payload, JobSubmit)
        wanted = JobSpec.model_validate_json((EXAMPLE / "job.json").read_text())
        assert event.payload.spec == wanted
        job_id = job_id_for("default", "request-1")
        queued = JobQueued(
            job_id=job_id, request_id="request-1", spec=wanted, queued_at=datetime.now(UTC)
        )
        await send(kafka, queued, cause="of-another-event")
        await send(kafka, queued, cause=event.event_id)
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert f"the job is {job_id}\njob.queued" in output.decode()


async def test_a_refused_request(kafka: KafkaAccess, tmp_path: Path) -> None:
    async with submitted(kafka, tmp_path, "request-2") as (process, event):
        rejected = JobRequestRejected(
            job_id=job_id_for("default", "request-2"),
            command_event_id=event.event_id,
            reason=RejectionReason.NO_SUCH_POOL,
            detail="there is no pool default",
        )
        await send(kafka, rejected, cause="")
        output, _ = await process.communicate()
    assert process.returncode == 1
    assert "there is no pool default" in output.decode()
