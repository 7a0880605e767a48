"""Lines of a log: taken, read, searched, moved to the object store. History is the lines before."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from services.metrics import streams
from services.metrics.logs import pages
from services.metrics.logs.moving import LogMover, LogPolicy
from services.metrics.logs.source import LogSource
from services.metrics.series.queries import LogsQuery
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.metrics.history import add_lines, add_other_jobs
from tests.events import make_event, make_record
from tests.fakes import InMemoryObjectStore
from tests.handlers.metrics.builders import JOB, make_logs


@pytest.fixture(autouse=True)
def as_slow_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is counted takes longer, and is to end by what it has read."""
    monkeypatch.setattr(pages, "MAX_SEARCH_SECONDS", 60.0)
    monkeypatch.setattr(pages, "MAX_SEARCHED_CHARACTERS", 200_000)


async def filled(database: OpenDatabase, num_chunks: int) -> Database:
    metrics = await database("metrics")
    await add_other_jobs(metrics, 1000)
    await add_lines(metrics, num_chunks)
    return metrics


async def page(metrics: Database, **query: Any) -> None:
    wanted = LogsQuery(job_id=JOB, **query)
    await pages.page(LogSource(metrics.connection, InMemoryObjectStore(), wanted), wanted)


async def test_lines_are_appended_at_the_same_cost_after_many(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)

        async def take(batch: int) -> None:
            lines = [f"step {number}" for number in range(20)]
            record = make_record(make_event(make_logs(lines, batch=batch, session="s2")))
            async with metrics.transaction() as tx:
                assert not await streams.take_logs(RunTokens(None), tx, [record])

        for batch in range(100):
            yield partial(take, batch)

    (await measure(scenario, 500)).assert_flat()


@pytest.mark.parametrize(
    "query",
    [
        {"tail": 100},
        {"tail": 100, "before": 5000},
        {"after": 0, "limit": 100},
        {"after": 5000, "limit": 100},
        {"search": "nothing", "tail": 100},
        {"search": "nothing", "after": 0},
    ],
    ids=str,
)
async def test_a_page_costs_the_same_after_many_lines(
    query: dict[str, Any], database: OpenDatabase
) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        while True:
            yield partial(page, metrics, **query)

    (await measure(scenario, 1500)).assert_flat()


async def test_a_search_by_level_costs_as_much_as_there_are_batches(database: OpenDatabase) -> None:
    """Only the highest level of each batch is read, so this is bounded by time alone."""

    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        while True:
            yield partial(page, metrics, level="error", tail=100)

    (await measure(scenario, 2500)).assert_linear()


async def test_lines_that_stay_are_not_read(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await filled(database, size)
        await add_other_jobs(metrics, size, first=2000)
        policy = LogPolicy(max_bytes=2**30, keep=timedelta(days=30))
        mover = LogMover(metrics, InMemoryObjectStore(), policy)
        while True:
            yield mover.run

    (await measure(scenario, 1000)).assert_flat()


async def test_lines_are_moved_at_the_cost_of_their_number(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_other_jobs(metrics, 1000)
        policy = LogPolicy(max_bytes=2**30, quiet=timedelta(0))
        while True:
            await add_lines(metrics, size)
            yield LogMover(metrics, InMemoryObjectStore(), policy).run
            async with metrics.connection() as connection:
                await connection.execute("delete from log_heads where job_id = $1", JOB)

    (await measure(scenario, 100)).assert_linear()
