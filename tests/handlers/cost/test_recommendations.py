"""Recommendations from the shares of jobs: of the tenant's own jobs, in the days asked for."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import AlertCleared, AlertRaised
from services.cost.api import read_api
from services.cost.handlers import handlers
from services.cost.low_use import paid_for
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
        (low,) = await paid_for(connection, "default", START.date(), START.date(), 9)
    assert (low.micro_usd, low.saving_micro_usd) == (72_000_000, 72_000_000)
