"""A pass of the retention of the runtime's own tables."""

from datetime import timedelta

import pytest

from drivetrain_schemas.topics import COMMANDS_JOBS
from services.runtime import retention as retention_module
from services.runtime.database import Database
from services.runtime.retention import KEEP, Retention
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.rows import analyze
from tests.fakes import ManualClock


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth shows from several steps on."""
    monkeypatch.setattr(retention_module, "STEP_ROWS", 100)
    monkeypatch.setattr(retention_module, "STEP_SECONDS", 0.0)


async def put_in_inbox(database: Database, name: str, number: int, age: timedelta) -> None:
    async with database.connection() as connection:
        await connection.execute(
            """insert into inbox (digest, topic, partition, "offset", handled_at)
            select sha256(convert_to($1 || number, 'UTF8')), $2, number % 4, number,
                clock_timestamp() - $3::interval
            from generate_series(1, $4::int) as number""",
            name,
            f"drivetrain.{COMMANDS_JOBS.name}",
            age,
            number,
        )
    await analyze(database)


async def test_a_pass_costs_as_much_as_it_deletes(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        db = await database("cost")
        while True:
            await put_in_inbox(db, "old", size, KEEP + timedelta(days=1))
            yield Retention(db, "drivetrain.", ManualClock()).prune

    (await measure(scenario, 500)).assert_linear()


async def test_inbox_rows_that_stay_cost_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        db = await database("cost")
        await put_in_inbox(db, "new", size, timedelta(days=1))
        while True:
            await put_in_inbox(db, "old", 50, KEEP + timedelta(days=1))
            yield Retention(db, "drivetrain.", ManualClock()).prune

    (await measure(scenario, 1000)).assert_flat()
