"""Rows that no batch and no heartbeat can ask for any more are deleted; what people read stays."""

from datetime import timedelta

from drivetrain_schemas.metrics import SamplesRecorded
from services.metrics.retention import KEEP_BATCHES, KEEP_RUNS, RULES
from services.runtime.database import Database
from services.runtime.retention import Retention
from tests.conftest import OpenDatabase
from tests.fakes import ManualClock

HOUR = timedelta(hours=1)
OTHERS = {"batches": 1, "runs": 2, "alerts": 2}


async def counts(db: Database) -> dict[str, int]:
    async with db.connection() as connection:
        return {
            table: await connection.fetchval(f"select count(*) from {table}") for table in OTHERS
        }


async def test_old_rows_go_and_new_ones_stay(database: OpenDatabase) -> None:
    db = await database("metrics")
    async with db.connection() as connection:
        await connection.execute(
            """insert into batches (run_id, rank, session, batch, stream, received_at)
            select 'run_' || age, 0, 's', 1, 'samples', clock_timestamp() - age
            from unnest($1::interval[]) as age""",
            [KEEP_BATCHES + HOUR, KEEP_BATCHES - HOUR],
        )
        await connection.execute(
            """insert into runs (run_id, job_id, tenant_id, attempt, state, created_at, heard_at)
            select name, 'job_a', 'default', 1, state, clock_timestamp() - age,
                extract(epoch from clock_timestamp() - heard)
            from unnest($1::text[], $2::text[], $3::interval[], $4::interval[])
                as run (name, state, age, heard)""",
            ["ended", "never-heard", "running", "heard-lately"],
            ["failed", None, "running", "succeeded"],
            [KEEP_RUNS + HOUR] * 4,
            [KEEP_RUNS + HOUR, None, KEEP_RUNS + HOUR, HOUR],
        )
        await connection.execute(
            """insert into alerts (run_id, alert, series, raised_at)
            select run, 'stalled', '', clock_timestamp() - age
            from unnest($1::text[], $2::interval[]) as alert (run, age)""",
            ["ended", "running", "new"],
            [KEEP_BATCHES + HOUR, KEEP_BATCHES + HOUR, HOUR],
        )
    await Retention(db, "t.", ManualClock(), RULES).prune()
    assert await counts(db) == OTHERS
    async with db.connection() as connection:
        left = await connection.fetch("select run_id from runs union select run_id from alerts")
    assert {row["run_id"] for row in left} == {"running", "heard-lately", "new"}


def test_a_batch_is_remembered_for_longer_than_its_topic_keeps_it() -> None:
    retention_ms = SamplesRecorded.kind.topic.retention_ms
    assert timedelta(milliseconds=retention_ms) + timedelta(days=7) <= KEEP_BATCHES
