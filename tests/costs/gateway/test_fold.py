"""The fold of a batch of events into the read model."""

from functools import partial
from itertools import count
from typing import Any

from drivetrain_schemas.envelope import Event
from services.gateway.handlers import events_handler
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.gateway.world import history, little
from tests.handlers.gateway.searches import SearchStory
from tests.handlers.gateway.story import Story


async def of_history(database: OpenDatabase, size: int) -> Runs:
    model = await history(database, size)
    for turn in count():
        yield partial(fold, model.database, story(2, turn))


async def of_a_batch(database: OpenDatabase, size: int) -> Runs:
    """So many jobs, nodes, and trials of one study."""
    model = await little(database, 2000)
    for turn in count():
        yield partial(fold, model.database, story(size, turn))


async def fold(db: Database, events: list[Event[Any]]) -> None:
    async with db.transaction() as tx:
        await events_handler(lambda: None)(tx, events)


def story(size: int, turn: int) -> list[Event[Any]]:
    """Others in each turn, so that each has all of the work."""
    told = Story()
    told.nodes(*(f"node-{turn}-{number}" for number in range(size)))
    search = SearchStory(told, f"search-{turn}", with_jobs=False)
    for number in range(size):
        job = told.job(f"{turn}-{number}")
        job.waits()
        job.starts()
        job.loses(job.saves(100), 100)
        job.succeeds()
        search.proposes(number, {"learning_rate": 0.1})
        for step in (10, 30):
            search.judges(number, step, 0.5, "continue")
        search.completes(number, number / size)
    return told.events


async def test_a_batch_costs_nothing_for_the_jobs_in_the_read_model(
    database: OpenDatabase,
) -> None:
    (await measure(partial(of_history, database), 1000)).assert_flat()


async def test_a_batch_costs_as_much_as_its_events(database: OpenDatabase) -> None:
    (await measure(partial(of_a_batch, database), 10)).assert_linear()
