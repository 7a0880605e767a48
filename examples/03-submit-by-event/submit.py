"""Submit a job by event from Python, with aiokafka and no Drivetrain code, and print the reply.

    python submit.py job.json nightly-2026-01-31

The connection comes from $DRIVETRAIN_HOME/connection.json (default ~/.drivetrain). Exit code 0: the
job was queued; 1: it was refused; 2: no reply within 30 s.
"""

import asyncio
import base64
import hashlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

TENANT = "default"
REPLIES = ("job.queued", "job_request.rejected")


def connection() -> dict[str, Any]:
    home = Path(os.environ.get("DRIVETRAIN_HOME", "~/.drivetrain")).expanduser()
    kafka = json.loads((home / "connection.json").read_text())["kafka"]
    return {
        "bootstrap_servers": kafka["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka["username"],
        "sasl_plain_password": kafka["password"],
    }


def job_id_of(tenant: str, request_id: str) -> str:
    digest = hashlib.sha256(f"{tenant}\0{request_id}".encode()).digest()
    return "job_" + base64.b32encode(digest).decode().lower()[:26]


async def submit(request_id: str, spec: dict[str, Any]) -> tuple[str, str]:
    """The ids of job and event. Both are derived from the request, so sending can be repeated."""
    job_id = job_id_of(TENANT, request_id)
    value = json.dumps({"request_id": request_id, "spec": spec}, sort_keys=True).encode()
    event_id = f"{request_id}/{hashlib.sha256(value).hexdigest()[:16]}"
    headers = {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": event_id,
        "ce_source": "/examples/python",
        "ce_type": "job.submit",
        "ce_time": datetime.now(UTC).isoformat(),
        "ce_tenantid": TENANT,
    }
    async with AIOKafkaProducer(**connection(), acks="all", enable_idempotence=True) as producer:
        await producer.send_and_wait(
            "drivetrain.commands.jobs",
            key=job_id.encode(),
            value=value,
            headers=[(name, text.encode()) for name, text in headers.items()],
        )
    return job_id, event_id


async def wait_for_reply(job_id: str, event_id: str) -> tuple[str, dict[str, Any]]:
    """The scheduler's reply to this event. It is kept forever, so it can be read later."""
    consumer = AIOKafkaConsumer(
        "drivetrain.events.jobs", **connection(), group_id=None, auto_offset_reset="earliest"
    )
    async with consumer:
        async for record in consumer:
            headers = {name: text.decode() for name, text in record.headers if text is not None}
            if record.key != job_id.encode() or headers.get("ce_type") not in REPLIES:
                continue
            reply = json.loads(record.value)
            if event_id in (headers.get("ce_causationid"), reply.get("command_event_id")):
                return headers["ce_type"], reply
    raise AssertionError("a consumer never ends")


async def main(request_id: str, spec: dict[str, Any]) -> int:
    job_id, event_id = await submit(request_id, spec)
    print(f"sent {event_id}; the job is {job_id}")
    try:
        kind, reply = await asyncio.wait_for(wait_for_reply(job_id, event_id), timeout=30)
    except TimeoutError:
        print("no reply; see 'If there is no reply' in docs/guides/submit-by-event.md")
        return 2
    print(kind, json.dumps(reply, indent=2))
    return 0 if kind == "job.queued" else 1


if __name__ == "__main__":
    file, request_id = sys.argv[1:]
    sys.exit(asyncio.run(main(request_id, json.loads(Path(file).read_text()))))
