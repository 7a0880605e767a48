"""Batches of events about jobs that are granted slots, give them back and end."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, JobSucceeded
from drivetrain_schemas.runs import RunStarted, RunSucceeded
from services.cost.handlers import batch_handler
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.costs.cost.world import BOOK, TENANT, world
from tests.costs.counting import Runs, measure
from tests.events import make_event


async def of_history(database: OpenDatabase, size: int) -> Runs:
    platform = await world(database, num_ended=size, num_held=10)
    for turn in count():
        yield partial(handle, platform.database, story(5, turn))


async def of_a_batch(database: OpenDatabase, size: int) -> Runs:
    """`size` events."""
    platform = await world(database, num_ended=1000, num_held=10)
    for turn in count():
        yield partial(handle, platform.database, story(size // 6, turn))


async def handle(db: Database, events: list[Event[Any]]) -> None:
    async with db.transaction() as tx:
        await batch_handler(BOOK)(tx, events)


def story(number: int, turn: int) -> list[Event[Any]]:
    """Six events of each of so many jobs. Others in each turn: a batch is handled once."""
    lives = [life(f"{turn}-{each}") for each in range(number)]
    return [
        make_event(payload, tenant_id=TENANT)
        for step in zip(*lives, strict=True)
        for payload in step
    ]


def life(name: str) -> list[Any]:
    job_id = job_id_for(TENANT, name)
    now = datetime.now(UTC)
    run = {"job_id": job_id, "run_id": run_id_for(job_id, 1), "attempt": 1, "fence": 1}
    held = {
        **run,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": TENANT,
        "pool": "pool-1",
        "device_type": "cpu",
        "slots": ({"node_id": "node-1", "slot": 0},),
        "granted_at": now - timedelta(minutes=1),
    }
    spec = JobSpec(name=name, command="true", project="p1")
    return [
        JobQueued(job_id=job_id, request_id=name, spec=spec, trial=None, queued_at=now),
        AllocationGranted(**held),
        RunStarted(**run, started_at=now),
        RunSucceeded(**run, result=None, ended_at=now),
        AllocationReleased(**held, released_at=now, paid_ends_at=now),
        JobSucceeded(job_id=job_id, attempts=1, result=None, finished_at=now),
    ]


async def test_a_batch_costs_nothing_for_what_was_charged_before(database: OpenDatabase) -> None:
    (await measure(partial(of_history, database), 2500)).assert_flat()


async def test_a_batch_costs_as_much_as_its_events(database: OpenDatabase) -> None:
    (await measure(partial(of_a_batch, database), 48)).assert_linear()
