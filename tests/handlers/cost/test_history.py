"""Estimates from jobs that succeeded earlier, with the same name, command or project."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, JobSucceeded
from services.cost.api import read_api
from services.cost.handlers import handlers
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.fakes import ManualClock
from tests.handlers.cost.test_chargeback import BOOK, MIDNIGHT, held, released

LIKE = {"name": "new", "command": ["other"], "project": None, "pool": "default"}


def ran(number: int, seconds: int, has_succeeded: bool = True) -> list[Payload]:
    """A job that held a slot for so long."""
    job_id = job_id_for("vision", f"n{number}")
    spec = JobSpec(name="digits", command="train --fast", project="robots")
    queued = JobQueued(job_id=job_id, request_id=f"n{number}", spec=spec, queued_at=MIDNIGHT)
    end = held("vision", f"n{number}", 0)["granted_at"] + timedelta(seconds=seconds)
    release = released(held("vision", f"n{number}", 0))
    release = release.model_copy(update={"released_at": end, "paid_ends_at": end})
    succeeded = JobSucceeded(job_id=job_id, attempts=1, finished_at=end)
    return [queued, release, *([succeeded] if has_succeeded else [])]


async def ask(db: Database, **job: Any) -> dict[str, Any]:
    platform: Any = SimpleNamespace(database=db, clock=ManualClock(MIDNIGHT))
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        body = {**LIKE, "device_type": "gpu", **job}
        found: dict[str, Any] = (await client.post("/history/vision", json=body)).json()
    return found


@pytest.mark.parametrize(
    ("job", "basis"),
    [
        ({"name": "digits"}, "name"),
        ({"command": ["train", "--fast"]}, "command"),
        ({"project": "robots"}, "project"),
    ],
)
async def test_of_jobs_that_succeeded(
    database: OpenDatabase, job: dict[str, Any], basis: str
) -> None:
    db = await database("cost")
    assert await ask(db, **job) == {"num_jobs": 0} | dict.fromkeys(
        [
            "basis",
            *(f"{part}_device_seconds" for part in ("low", "median", "high")),
            *(f"{part}_micro_usd" for part in ("low", "median", "high")),
        ]
    )
    payloads = [
        *ran(1, 100), *ran(2, 3600), *ran(3, 7200), *ran(4, 9, has_succeeded=False)
    ]  # fmt: skip
    events = [make_event(payload, tenant_id="vision") for payload in payloads]
    await handle(db, handlers(BOOK), *events)
    found = await ask(db, **job)
    assert (found["num_jobs"], found["basis"]) == (3, basis)
    assert (found["low_device_seconds"], found["high_device_seconds"]) == (100, 7200)
    assert (found["median_device_seconds"], found["median_micro_usd"]) == (3600, 2_500_001)
    unpriced = await ask(db, device_type="other", **job)
    assert (unpriced["median_device_seconds"], unpriced["median_micro_usd"]) == (3600, None)
    assert (await ask(db))["num_jobs"] == 0
