"""Live windows and heartbeats of runs: judged at the cost of the runs that are live.

Jobs that have ended grow with these, so that none of them is read once for each.
"""

from functools import partial

from drivetrain_schemas.ids import job_id_for, run_id_for
from services.metrics.core.windows import WINDOW_SECONDS, Source, add_batch
from services.metrics.handlers import take_reports
from services.metrics.series.queries import WindowsQuery
from services.metrics.windows import pages, records
from services.metrics.windows.records import SourceState
from services.metrics.windows.stored import take_windows
from services.runtime.bus import Record
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.metrics.history import add_other_jobs
from tests.events import make_event, make_record
from tests.handlers.metrics.builders import make_heartbeat

JOB = job_id_for("default", "0")


def window_of(job_id: str, number: int) -> Record:
    """One more window of rank 0, in which the loss diverges."""
    at = float(number * WINDOW_SECONDS)
    columns = {"loss": ([number], [0.5 + number])}
    state = SourceState(
        tenant_id="default",
        job_id=job_id,
        run_id=run_id_for(job_id, 1),
        attempt=1,
        rank=0,
        partition=0,
        version=number,
        source=add_batch(Source(), at, 0, "s", number, columns),
    )
    return Record("drivetrain.windows", 0, 0, 0, state.key, records.write(state))


async def take(metrics: Database, *windows: Record) -> None:
    async with metrics.transaction() as tx:
        assert not await take_windows(tx, windows)


async def with_windows(database: OpenDatabase, number: int) -> Database:
    """Of other runs, and of this one before."""
    metrics = await database("metrics")
    await add_other_jobs(metrics, number)
    async with metrics.connection() as connection:
        await connection.execute(
            f"""
            insert into windows (run_id, source_id, starts_at, job_id, attempt, rank, version,
                series)
            select '{run_id_for(JOB, 1)}', '{run_id_for(JOB, 1)}/0', n * {WINDOW_SECONDS}, '{JOB}',
                1, 0, 1, '{{}}' from generate_series(1, {number}) as n;
            insert into run_health (run_id, next_window, health)
            values ('{run_id_for(JOB, 1)}', {number} * {WINDOW_SECONDS}, '{{}}');
            analyze;
            """
        )
    return metrics


async def test_windows_of_live_runs_cost_as_much_as_there_are(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_other_jobs(metrics, 50 * size)
        jobs = [job_id_for("default", str(number)) for number in range(size)]
        for number in range(1, 100):
            yield partial(take, metrics, *(window_of(job_id, number) for job_id in jobs))

    (await measure(scenario, 20)).assert_linear()


async def test_a_window_is_judged_at_the_same_cost_after_many(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await with_windows(database, size)
        for number in range(size + 1, size + 100):
            yield partial(take, metrics, window_of(JOB, number))

    (await measure(scenario, 500)).assert_flat()


async def test_windows_are_shown_at_the_same_cost_after_many(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await with_windows(database, size)

        async def page() -> None:
            async with metrics.connection() as connection:
                await pages.page(connection, WindowsQuery(job_id=JOB))

        while True:
            yield page

    (await measure(scenario, 500)).assert_flat()


async def test_heartbeats_cost_as_much_as_there_are(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_other_jobs(metrics, 50 * size)
        jobs = [job_id_for("default", str(number)) for number in range(size)]
        for step in range(1, 100):
            reports = [
                make_record(make_event(make_heartbeat(job_id=job_id, step=step))) for job_id in jobs
            ]

            async def heard(reports=reports) -> None:
                async with metrics.transaction() as tx:
                    await take_reports(RunTokens(None), tx, reports)

            yield heard

    (await measure(scenario, 20)).assert_linear()
