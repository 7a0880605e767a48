"""The chargeback report: every slot-second of a pool is in one line, and nothing else is."""

import json
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for, study_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, TrialOf
from drivetrain_schemas.nodes import NodeRegistered
from drivetrain_schemas.runs import RunStarted
from services.cost.api import read_api
from services.cost.core.prices import Price, PriceBook
from services.cost.handlers import handlers
from services.cost.pools import Sharing
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event

MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
# An odd price, so that shares are rounded.
BOOK = PriceBook((Price("p", "gpu", MIDNIGHT - timedelta(days=30), 2_500_001),))
STUDY = study_id_for("vision", "search")
NODE = NodeRegistered(node_id="a", pool="default", device_type="gpu", num_slots=3)


def queued(tenant_id: str, name: str, trial: TrialOf | None = None) -> JobQueued:
    return JobQueued(
        job_id=job_id_for(tenant_id, name),
        request_id=name,
        spec=JobSpec(name=name, command="true"),
        trial=trial,
        queued_at=MIDNIGHT,
    )


def held(tenant_id: str, name: str, slot: int) -> dict[str, Any]:
    job_id = job_id_for(tenant_id, name)
    return {
        "job_id": job_id,
        "run_id": run_id_for(job_id, 1),
        "attempt": 1,
        "fence": 1,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": tenant_id,
        "pool": "default",
        "device_type": "gpu",
        "slots": ({"node_id": "a", "slot": slot},),
        "granted_at": MIDNIGHT - timedelta(hours=2, microseconds=7 * slot + 1),
    }


def started(facts: dict[str, Any]) -> RunStarted:
    run = {name: facts[name] for name in ("job_id", "run_id", "attempt", "fence")}
    return RunStarted(**run, started_at=facts["granted_at"] + timedelta(minutes=1))


def released(facts: dict[str, Any]) -> AllocationReleased:
    end = MIDNIGHT + HOUR + timedelta(microseconds=1)
    return AllocationReleased(**facts, paid_ends_at=end - timedelta(seconds=3), released_at=end)


async def deliver(db: Database, tenant_id: str, *payloads: Payload) -> None:
    for payload in payloads:
        event = make_event(payload, tenant_id=tenant_id)
        if isinstance(payload, NodeRegistered):
            object.__setattr__(event, "occurred_at", MIDNIGHT - timedelta(days=1))
        await handle(db, handlers(BOOK), event)


async def story(db: Database) -> None:
    """Two of three slots are held over midnight; one by a trial, one by another tenant's job."""
    mine, theirs = held("vision", "mine", 0), held("speech", "theirs", 1)
    open_ = held("vision", "open", 2)
    trial = queued("vision", "mine", TrialOf(study_id=STUDY, number=0))
    await deliver(db, "vision", NODE, trial, queued("vision", "open"))
    await deliver(db, "vision", AllocationGranted(**mine), started(mine), released(mine))
    await deliver(db, "speech", queued("speech", "theirs"), started(theirs), released(theirs))
    await deliver(db, "vision", AllocationGranted(**open_), started(open_))


async def report(db: Database, by: str = "job", last: date = date(2026, 2, 1)) -> list[Any]:
    platform: Any = SimpleNamespace(database=db)
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    days = {"first": (MIDNIGHT - HOUR).date().isoformat(), "last": last.isoformat()}
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        answer = await client.get("/chargeback/vision", params={**days, "by": by})
    assert answer.status_code == 200, answer.text
    *found, end = [json.loads(line) for line in answer.text.splitlines()]
    assert end == {"is_complete": True}
    return found


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("by", ["job", "study", "project", "tenant"])
async def test_the_lines_of_a_day_add_up_to_the_pool_s_cost(
    database: OpenDatabase, by: str, is_shared: bool
) -> None:
    db = await database("cost")
    await story(db)
    platform: Any = SimpleNamespace(database=db)
    if is_shared:
        assert await Sharing(BOOK).share(platform, timedelta()) == 2
    found = await report(db, by)
    for day in (MIDNIGHT - HOUR, MIDNIGHT):
        of_day = [line for line in found if line["day"] == day.date().isoformat()]
        assert sum(line["slot_microseconds"] for line in of_day) == 3 * 24 * 3_600_000_000
        assert sum(line["micro_usd"] for line in of_day) == 3 * 24 * 2_500_001
    keys = [tuple(value for name, value in line.items() if "micro" not in name) for line in found]
    assert len(keys) == len(set(keys))
    async with db.connection() as connection:
        charged = await connection.fetchval("select sum(amount_micro_usd) from charges")
    ended = [line for line in found if line["tenant_id"] and line["job_name"] != "open"]
    if by == "job":
        assert sum(line["micro_usd"] for line in ended) == charged


async def test_a_line_names_its_job_and_what_others_had_is_one(database: OpenDatabase) -> None:
    db = await database("cost")
    await story(db)
    platform: Any = SimpleNamespace(database=db)
    assert await Sharing(BOOK).share(platform, timedelta()) == 2
    found = await report(db, last=date(2026, 1, 31))
    shown = {
        (line["tenant_id"], line["job_name"], line["study_id"], line["kind"]) for line in found
    }
    assert shown == {
        ("vision", "mine", STUDY, "starting"),
        ("vision", "mine", STUDY, "productive"),
        ("vision", "open", None, "starting"),
        ("vision", "open", None, "productive"),
        ("others", None, None, "starting"),
        ("others", None, None, "productive"),
        (None, None, None, "idle"),
    }
    assert {line["job_id"] for line in found if line["job_name"] == "mine"} == {
        job_id_for("vision", "mine")
    }


async def test_a_line_of_a_study_is_of_all_its_jobs(database: OpenDatabase) -> None:
    db = await database("cost")
    await story(db)
    found = await report(db, "study", last=date(2026, 1, 31))
    assert {line["study_id"] for line in found if line["tenant_id"] == "vision"} == {STUDY, None}
    assert {line["job_id"] for line in found} == {None}


async def test_more_days_than_a_year_are_refused(database: OpenDatabase) -> None:
    db = await database("cost")
    platform: Any = SimpleNamespace(database=db)
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        query = {"first": "2026-01-01", "last": "2027-01-02"}
        answer = await client.get("/chargeback/vision", params=query)
    assert answer.status_code == 422
    assert "last" in answer.json()["detail"]
