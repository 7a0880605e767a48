"""What is asked about all studies: limits of time, prices for a preview, events to delete."""

from functools import partial

from services.hpo import clock, rates
from services.hpo.retention import RULES
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.retention import Retention
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.hpo.studies import other_studies, spec_of


async def test_limits_are_looked_at_for_what_runs(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo = await database("hpo")
        await other_studies(hpo, size)
        while True:
            yield partial(clock.look, hpo, SystemClock())

    (await measure(scenario, 1000)).assert_flat()


async def test_a_preview_reads_the_newest_studies(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo, spec = await database("hpo"), spec_of(10, 1)
        await other_studies(hpo, size, spec.model_dump_json())

        async def known() -> None:
            async with hpo.connection() as connection:
                await rates.known(connection, "default", spec)

        while True:
            yield known

    (await measure(scenario, 1000)).assert_flat()


async def test_events_of_searches_that_stay_are_not_read(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo = await database("hpo")
        await other_studies(hpo, size)
        while True:
            yield pruning(hpo)

    (await measure(scenario, 1000)).assert_flat()


async def test_events_of_searches_go_at_the_cost_of_their_number(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo = await database("hpo")
        await other_studies(hpo, 2000)
        while True:
            await age_events(hpo, size)
            yield pruning(hpo)

    (await measure(scenario, 100)).assert_linear()


def pruning(hpo: Database) -> partial:
    return partial(Retention(hpo, "", SystemClock(), RULES).prune)


async def age_events(hpo: Database, number: int) -> None:
    """The next so many events are those of studies that ended long ago."""
    async with hpo.connection() as connection:
        await connection.execute(
            """
            with old as (
                update search_events set at = now() - interval '100 days' where study_id in (
                    select study_id from search_events order by at desc limit $1)
                returning study_id)
            update studies set finished_at = now() - interval '100 days'
            where study_id in (select study_id from old)
            """,
            number,
        )
