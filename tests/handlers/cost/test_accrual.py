"""What is held accrues until it is known to be over, though its release is late or never read."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted
from drivetrain_schemas.ids import allocation_id_for, run_id_for
from drivetrain_schemas.jobs import JobCancelled, JobFailed
from drivetrain_schemas.runs import (
    RunInterrupted,
    RunSuspected,
    RunUnreachable,
    RunWaiting,
    WaitCause,
)
from services.cost import store, store_accrual, store_budgets
from services.cost.api import read_api
from tests.conftest import OpenDatabase
from tests.fakes import ManualClock
from tests.handlers.cost.test_pools import (
    BOOK,
    FACTS,
    FAILED,
    HELD,
    HOUR,
    JOB,
    NODE,
    NOON,
    RELEASED,
    STARTED,
    at,
    deliver,
    shares,
)

UNTIL = NOON + 12 * HOUR
_SLOTS = ({"node_id": "a", "slot": 0}, {"node_id": "b", "slot": 0})
GRANTED = AllocationGranted(**{**HELD, "slots": _SLOTS})
AGAIN = AllocationGranted(
    **{
        **HELD,
        "run_id": run_id_for(JOB, 2),
        "attempt": 2,
        "allocation_id": allocation_id_for(JOB, 2),
        "granted_at": NOON + 3 * HOUR,
    }
)
AWAY = RunUnreachable(**FACTS, node_ids=("a", "b"))
REFUSED = RunWaiting(**FACTS, cause=WaitCause.REFUSED, by="quota few", detail="refused")
PULLING = RunWaiting(**FACTS, cause=WaitCause.PULLING, by="n1", detail="pulls")
BACK = RunUnreachable(**FACTS, node_ids=())
ENDED = JobFailed(job_id=JOB, attempts=1, detail="", finished_at=NOON + 3 * HOUR)
CANCELLED = JobCancelled(job_id=JOB, reason="", finished_at=NOON + 3 * HOUR)
INTERRUPTED = RunInterrupted(**FACTS, ended_at=NOON + 3 * HOUR)


@pytest.mark.parametrize(
    ("told", "paid_hours", "platform_hours"),
    [
        pytest.param([at(FAILED, NOON + 3 * HOUR)], 3, 0, id="its run ended"),
        pytest.param([at(INTERRUPTED, NOON + 5 * HOUR)], 3, 0, id="its end came late"),
        pytest.param([at(ENDED, NOON + 3 * HOUR)], 3, 0, id="its job ended"),
        pytest.param([at(CANCELLED, NOON + 3 * HOUR)], 3, 0, id="its job was cancelled"),
        pytest.param([at(AWAY, NOON + 3 * HOUR)], 3, 9, id="its nodes do not answer"),
        pytest.param([at(AWAY, NOON + 3 * HOUR), at(AWAY, NOON + 5 * HOUR)], 3, 9, id="told again"),
        pytest.param(
            [at(AWAY, NOON + 3 * HOUR), at(FAILED, NOON + 4 * HOUR)], 3, 0, id="gone with its node"
        ),
        pytest.param(
            [at(AWAY, NOON + 2 * HOUR), at(BACK, NOON + 3 * HOUR)], 12, 0, id="they answer again"
        ),
        pytest.param(
            [at(RunUnreachable(**FACTS, node_ids=("a",)), NOON)], 12, 0, id="one of two answers"
        ),
        pytest.param([at(REFUSED, NOON + HOUR)], 0, 12, id="its pods are refused"),
        pytest.param([at(REFUSED, NOON), at(PULLING, NOON + HOUR)], 12, 0, id="and then made"),
        pytest.param([at(REFUSED, NOON), at(STARTED, NOON + HOUR)], 12, 0, id="and then run"),
        pytest.param([at(PULLING, NOON)], 12, 0, id="their image is pulled"),
        pytest.param([at(RunSuspected(**FACTS), NOON)], 12, 0, id="no heartbeats arrive"),
    ],
)
async def test_what_is_held_is_paid_until_it_is_over(
    database: OpenDatabase, told: list[Any], paid_hours: int, platform_hours: int
) -> None:
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(GRANTED, NOON), at(STARTED, NOON), *told)
    found = await shares(db, UNTIL)
    paid = sum(hours for (_, tenant), hours in found.items() if tenant == "vision")
    assert (paid, found.get(("platform", ""), 0)) == (2 * paid_hours, 2 * platform_hours)

    is_over = paid_hours < 12
    async with db.connection() as connection:
        now = await store.now(connection)
        (of_job,) = await store.open_usages_of(connection, "job", JOB)
        (of_budgets,) = await store_budgets.open_usages(connection, ["vision"])
        held = await store.held_slots(connection)
        unreleased = await store_accrual.num_unreleased(connection)
    for usage in (of_job, of_budgets.usage):
        end = NOON + paid_hours * HOUR
        assert usage.ends_at == end if is_over else usage.ends_at >= now
    assert bool(held) is not is_over
    assert unreleased == (is_over and not platform_hours)


async def test_a_later_grant_of_the_job_ends_an_earlier_one(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(GRANTED, NOON), at(AGAIN, NOON + 3 * HOUR))
    # Delivered again after its inbox row was deleted: it changes nothing.
    await deliver(db, at(GRANTED, NOON))
    async with db.connection() as connection:
        first, second = await store.open_usages_of(connection, "job", JOB)
    assert {first.starts_at, first.ends_at, second.starts_at} == {NOON, AGAIN.granted_at}


async def test_the_release_decides_though_it_comes_late(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(GRANTED, NOON), at(STARTED, NOON))
    await deliver(db, at(AWAY, NOON + HOUR), at(ENDED, NOON + 2 * HOUR), at(RELEASED, UNTIL))
    platform: Any = SimpleNamespace(database=db, clock=ManualClock(UNTIL))
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        spend = (await client.get(f"/spend/jobs/{JOB}")).json()
    price = HOUR // timedelta(microseconds=1)  # of an hour
    assert spend["total_micro_usd"] == spend["charged_micro_usd"] == 3 * price
    assert spend["platform_micro_usd"] == price


async def test_an_allocation_is_over_at_the_next_grant_of_several(database: OpenDatabase) -> None:
    db = await database("cost")
    granted = [
        GRANTED.model_copy(
            update={
                "attempt": attempt,
                "allocation_id": allocation_id_for(JOB, attempt),
                "granted_at": NOON + attempt * HOUR,
            }
        )
        for attempt in (3, 2, 1)
    ]
    async with db.transaction() as tx:
        await store.put_allocations(tx.connection, granted)
        over = await tx.connection.fetch("select over_at from allocations order by granted_at")
    assert [row["over_at"] for row in over] == [NOON + 2 * HOUR, NOON + 3 * HOUR, None]
