"""Recommendations from the shares of jobs: of the tenant's own jobs, in the days asked for."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, JobSucceeded
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from drivetrain_schemas.nodes import NodeRegistered
from services.cost.api import read_api
from services.cost.core.prices import Price, PriceBook
from services.cost.handlers import handlers
from services.cost.low_use import paid_for
from services.cost.pools import Sharing
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.handlers.cost.test_chargeback import BOOK
from tests.handlers.cost.test_handlers import BOOK as PRICES
from tests.handlers.cost.test_handlers import JOB, START, granted, released

SHARES = """
insert into job_shares values
    ('2026-02-01', 'default', 'gpu', 'vision', 'job_a', 'productive', 1, 60000000),
    ('2026-02-02', 'default', 'gpu', 'vision', 'job_a', 'checkpointing', 1, 40000000),
    ('2026-02-02', 'default', 'gpu', 'vision', 'job_b', 'lost', 1, 80000000),
    ('2026-02-03', 'default', 'gpu', 'vision', 'job_b', 'lost', 1, 80000000),
    ('2026-02-02', 'default', 'gpu', 'vision', 'job_c', 'productive', 1, 80000000),
    ('2026-02-02', 'default', 'gpu', 'speech', 'job_d', 'lost', 1, 80000000);
insert into jobs (job_id, name) values ('job_a', 'digits');
"""


async def test_the_largest_saving_comes_first(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(SHARES)
    platform: Any = SimpleNamespace(database=db)
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        path = "/recommendations/vision"
        answer = await client.get(path, params={"first": "2026-02-01", "last": "2026-02-02"})
        refused = await client.get(path, params={"first": "2026-02-01", "last": "2026-06-02"})
    assert refused.status_code == 422
    found = answer.json()["recommendations"]
    assert [(it["job_id"], it["job_name"], it["kind"], it["saving_micro_usd"]) for it in found] == [
        ("job_b", None, "more_checkpoints", 76_000_000),
        ("job_a", "digits", "fewer_checkpoints", 35_000_000),
    ]


def alert(kind: type[AlertRaised | AlertCleared], after: timedelta, **figures: Any) -> Event[Any]:
    told = kind(
        tenant_id="default",
        job_id=JOB,
        run_id=run_id_for(JOB, 1),
        attempt=1,
        alert=figures.pop("alert", "low_utilisation"),
        detail="",
        **figures,
    )
    return replace(make_event(told), occurred_at=START + after)


async def test_time_of_little_use_is_told_with_what_it_cost(database: OpenDatabase) -> None:
    """Two slots at $36 an hour for three hours, of which one at 30 % where 75 % is expected."""
    db = await database("cost")
    hour = timedelta(hours=1)
    figures = {"value": 30.0, "threshold": 75.0}
    await handle(
        db,
        handlers(PRICES),
        make_event(granted()),
        alert(AlertRaised, hour / 2, value=0.5, threshold=0.8, alert="straggler"),
        alert(AlertRaised, hour / 2, value=75.0, threshold=75.0),
        alert(AlertRaised, hour, **figures),
        alert(AlertCleared, hour * 3 / 2, alert="stalled"),
        alert(AlertCleared, 2 * hour),
        make_event(released(3 * hour)),
    )
    platform: Any = SimpleNamespace(database=db)
    transport = httpx.ASGITransport(app=read_api(platform, PRICES))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        days = {"first": START.date().isoformat(), "last": START.date().isoformat()}
        (found,) = (await client.get("/recommendations/default", params=days)).json()[
            "recommendations"
        ]
        others = (await client.get("/recommendations/other", params=days)).json()
    assert (found["kind"], found["saving_micro_usd"]) == ("busier_devices", 43_200_000)
    assert "2.0 slot hours ($72.00)" in found["evidence"]
    assert "30 %" in found["evidence"]
    assert others == {"recommendations": []}


async def test_little_use_that_was_never_over_ends_with_what_is_paid(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    hour = timedelta(hours=1)
    raised = alert(AlertRaised, hour, value=0.0, threshold=75.0)
    end = make_event(released(3 * hour, paid=2 * hour))
    await handle(db, handlers(PRICES), raised, end)
    async with db.connection() as connection:
        (low,) = await paid_for(
            connection, AlertKind.LOW_UTILISATION, "default", START.date(), START.date(), 9
        )
    assert (low.micro_usd, low.saving_micro_usd) == (72_000_000, 72_000_000)


async def test_low_use_is_counted_and_logged_once_as_it_begins_and_ends(
    database: OpenDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told again after its inbox row was pruned: nothing changes."""
    db = await database("cost")
    hour = timedelta(hours=1)
    before = states()
    raised = {"kind": AlertRaised, "after": hour, "value": 10.0, "threshold": 75.0}
    cleared = {"kind": AlertCleared, "after": 2 * hour}
    for told in (raised, raised, cleared, cleared, raised):
        await handle(db, handlers(PRICES), alert(**told))
    assert [after - old for after, old in zip(states(), before, strict=True)] == [1, 1]
    logged = capsys.readouterr().out
    assert logged.count("low use of devices began") == 1
    assert logged.count("low use of devices ended") == 1


def states() -> list[float]:
    name = "drivetrain_cost_low_use_total"
    return [
        REGISTRY.get_sample_value(name, {"alert": "low_utilisation", "state": state}) or 0
        for state in ("began", "ended")
    ]


async def test_time_without_a_step_is_told_with_what_it_cost(database: OpenDatabase) -> None:
    """Both alerts at once: the time is told once, as what explains more of it."""
    db = await database("cost")
    hour = timedelta(hours=1)
    await handle(
        db,
        handlers(PRICES),
        make_event(granted()),
        alert(AlertRaised, hour, alert="stalled"),
        alert(AlertRaised, hour, value=10.0, threshold=75.0),
        alert(AlertCleared, 2 * hour),
        make_event(released(3 * hour)),
    )
    (found,) = await recommended(db, PRICES, "default")
    assert (found["kind"], found["saving_micro_usd"]) == ("idle_slots", 144_000_000)


async def test_a_command_that_costs_less_on_fewer_slots_is_told(database: OpenDatabase) -> None:
    db = await database("cost")
    for number in range(3):
        start = START + timedelta(hours=number)
        await run_to_the_end(db, f"wide {number}", num_slots=2, hours=2, start=start)
        await run_to_the_end(db, f"narrow {number}", num_slots=1, hours=3, start=start)
    await run_to_the_end(db, "yesterday", num_slots=2, hours=4, start=START - timedelta(days=1))
    (found,) = await recommended(db, PRICES, "default")
    assert (found["kind"], found["job_name"]) == ("fewer_devices", "wide 2")
    assert found["saving_micro_usd"] == 3 * (2 * 2 - 3) * 36_000_000
    assert "3 jobs of this command on 2 slots cost $144.00 and took 2.0 h" in found["evidence"]
    assert await recommended(db, PRICES, "other") == []


async def test_a_pool_of_spot_nodes_is_told_to_jobs_that_save_checkpoints(
    database: OpenDatabase,
) -> None:
    """$36 an hour on demand, and $9 on spot nodes, of which another job lost a tenth."""
    db = await database("cost")
    spot = Price("spot", "cpu", START - timedelta(days=9), 9_000_000, is_spot=True)
    book = PriceBook((*PRICES.prices, spot))
    job_id = await run_to_the_end(db, "saves", num_slots=2, hours=10, book=book)
    await run_to_the_end(db, "never saves", num_slots=2, hours=10, book=book)
    await run_to_the_end(db, "other", num_slots=1, hours=10, book=book, spot_nodes=("n0",))
    for pool, node_id, is_spot in (("a", "a0", True), ("a", "a1", False), ("b", "b0", True)):
        node = {"node_id": node_id, "pool": pool, "device_type": "cpu", "num_slots": 2}
        registered = make_event(NodeRegistered.model_validate({**node, "is_spot": is_spot}))
        await handle(db, handlers(book), registered)
    async with db.connection() as connection:
        await Sharing(book).share(sharing(db), timedelta())
        await connection.execute("update pool_spot_shares set kind = 'lost', micro_usd = 10")
        await connection.execute(
            """insert into pool_spot_shares
            select day, pool, device_type, tenant_id, 'productive', 1, 90 from pool_spot_shares"""
        )
        await connection.execute(
            "insert into stored_checkpoints values ('c', 'default', $1, 1, $2)", job_id, START
        )
    (found,) = await recommended(db, book, "default")
    assert (found["job_id"], found["kind"]) == (job_id, "spot_nodes")
    assert found["saving_micro_usd"] == 20 * 36_000_000 - 20 * 9_000_000 * 11 // 10
    assert found["advice"].startswith("submit it to pool b")
    assert "10.0 %" in found["evidence"]


def sharing(db: Database) -> Any:
    return SimpleNamespace(database=db)


async def recommended(db: Database, book: PriceBook, tenant_id: str) -> list[Any]:
    """On the day of START."""
    platform: Any = SimpleNamespace(database=db)
    transport = httpx.ASGITransport(app=read_api(platform, book))
    days = {"first": START.date().isoformat(), "last": START.date().isoformat()}
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        answer = await client.get(f"/recommendations/{tenant_id}", params=days)
    return list(answer.json()["recommendations"])


async def run_to_the_end(
    db: Database,
    name: str,
    num_slots: int,
    hours: int,
    start: datetime = START,
    book: PriceBook = PRICES,
    spot_nodes: tuple[str, ...] = (),
) -> str:
    """A job that holds so many slots for so long and succeeds. Returns its id."""
    job_id = job_id_for("default", name)
    held = {
        "job_id": job_id,
        "run_id": run_id_for(job_id, 1),
        "attempt": 1,
        "fence": 1,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": "default",
        "pool": "default",
        "device_type": "cpu",
        "slots": tuple({"node_id": f"n{slot}", "slot": 0} for slot in range(num_slots)),
        "granted_at": start,
        "spot_nodes": spot_nodes,
    }
    end = start + timedelta(hours=hours)
    ended = {"released_at": end, "paid_ends_at": end}
    await handle(
        db,
        handlers(book),
        make_event(
            JobQueued(
                job_id=job_id,
                request_id=name,
                spec=JobSpec(name=name, command="train"),
                queued_at=start,
            )
        ),
        make_event(AllocationGranted.model_validate(held)),
        make_event(AllocationReleased.model_validate({**held, **ended})),
        make_event(JobSucceeded(job_id=job_id, attempts=1, finished_at=end)),
    )
    return job_id
