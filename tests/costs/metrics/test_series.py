"""Samples: taken in batches, added to levels, shown in charts, moved to the object store.

History is the run's own samples, and other jobs.
"""

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.metrics import SamplesRecorded
from services.metrics import store_trials, streams
from services.metrics.cold.reading import ColdReader
from services.metrics.cold.tiering import Policy, Tierer
from services.metrics.core.rungs import Trial
from services.metrics.series import curves
from services.metrics.series.chart_reading import Source
from services.metrics.series.queries import ChartQuery
from services.metrics.series.rolling import Roller
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.metrics.history import SAMPLES_OF_CHUNK, add_other_jobs, add_samples
from tests.events import make_event, make_record
from tests.fakes import InMemoryObjectStore
from tests.handlers.metrics.builders import JOB, make_samples

STUDY = study_id_for("default", "study")
take_samples = partial(streams.take_samples, RunTokens(None))


async def take(metrics: Database, *batches: SamplesRecorded) -> None:
    records = [make_record(make_event(batch)) for batch in batches]
    async with metrics.transaction() as tx:
        assert not await take_samples(tx, records)


async def filled(database: OpenDatabase, num_chunks: int) -> Database:
    metrics = await database("metrics")
    await add_samples(metrics, num_chunks)
    await add_other_jobs(metrics, 100 * num_chunks)
    return metrics


def after(num_chunks: int, batch: int, name: str = "loss-0") -> SamplesRecorded:
    """A batch of the series, after those that were there before."""
    first = num_chunks * SAMPLES_OF_CHUNK + batch * 100
    return make_samples({name: dict.fromkeys(range(first, first + 100), 0.5)}, batch=batch)


async def test_samples_are_appended_at_the_same_cost_after_many(database: OpenDatabase) -> None:
    """Taken, and added to the levels."""

    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        roller = Roller(metrics, SystemClock(), max_age=timedelta(0))

        async def append(batch: SamplesRecorded) -> None:
            await take(metrics, batch)
            await roller.roll_all()

        for number in range(100):
            yield partial(append, after(size, number))

    (await measure(scenario, 16)).assert_flat()


async def test_a_batch_costs_as_much_as_it_holds(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        for batch in range(100):
            columns = {
                f"loss-{name}": dict.fromkeys(range(batch * 20, batch * 20 + 20), 0.5)
                for name in range(size)
            }
            yield partial(take, metrics, make_samples(columns, batch=batch))

    (await measure(scenario, 50)).assert_linear()


async def test_batches_of_many_trials_cost_as_much_as_there_are(database: OpenDatabase) -> None:
    """A batch of each trial in one poll, on the way to its first rung."""

    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        jobs = [job_id_for("default", str(number)) for number in range(size)]
        async with metrics.connection() as connection:
            for number, job_id in enumerate(jobs):
                trial = Trial(job_id, "default", STUDY, number, "loss", rungs=(10_000,))
                await store_trials.insert(connection, trial)
        for batch in range(100):
            steps = range(batch * 10 + 1, batch * 10 + 11)
            columns = {"loss": dict.fromkeys(steps, 0.5)}
            batches = [make_samples(columns, job_id=job_id, batch=batch) for job_id in jobs]
            yield partial(take, metrics, *batches)

    (await measure(scenario, 30)).assert_linear()


async def test_a_chart_costs_the_same_after_many_samples(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        while True:
            yield partial(read_chart, metrics)

    (await measure(scenario, 16)).assert_flat()


async def test_a_poll_of_a_chart_costs_the_same_after_many_samples(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        for number in range(100):
            position = msgspec.json.decode(await read_chart(metrics))["next"]
            await take(metrics, after(size, number))
            yield partial(read_chart, metrics, after=position)

    (await measure(scenario, 16)).assert_flat()


async def read_chart(metrics: Database, names: int = 1, **query: Any) -> bytes:
    wanted = ChartQuery(
        job_id=JOB, name=[f"loss-{n}" for n in range(names)], max_points=200, **query
    )
    cold = ColdReader(InMemoryObjectStore())
    async with metrics.connection() as connection:
        return await curves.chart(Source(connection, cold), wanted, 2_000_000)


async def test_a_chart_of_many_series_costs_as_much_as_there_are(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_samples(metrics, 4, size)
        while True:
            yield partial(read_chart, metrics, size)

    (await measure(scenario, 10)).assert_linear()


async def test_samples_that_stay_are_not_read(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        policy = Policy(after=timedelta(days=1), keep=timedelta(days=30))
        tierer = Tierer(metrics, InMemoryObjectStore(), policy)
        while True:
            yield tierer.run

    (await measure(scenario, 16)).assert_flat()
