"""Checkpoints: reported, verified, committed, listed, read again and deleted.

History is deleted checkpoints of the same job, and other jobs with all that the service has of
them. What a job keeps is read as a whole, each time that something is decided about it.
"""

from functools import partial

import pytest

from drivetrain_schemas.ids import job_id_for
from services.checkpoints import pruning, store, store_intents
from services.checkpoints.store_intents import Kind
from tests.conftest import OpenDatabase
from tests.costs.checkpoints.history import FIRST_STEP, OLD, Catalogue, catalogue
from tests.costs.counting import Runs, measure
from tests.handlers.checkpoints.builders import key_of, make_written, write_checkpoint

SIZE = 1000


async def saving(database: OpenDatabase, size: int, keep_last: int) -> Runs:
    """A checkpoint that is written and reported, while older ones are deleted by retention."""
    opened = await catalogue(database, size, keep_last)
    for step in range(FIRST_STEP, FIRST_STEP + keep_last + 2):
        await write_checkpoint(opened.store, step)
    await opened.report(make_written(step))
    while True:
        step += 1
        await write_checkpoint(opened.store, step)
        yield partial(opened.report, make_written(step))


async def test_a_checkpoint_costs_the_same_after_many_deleted_ones(database: OpenDatabase) -> None:
    (await measure(partial(saving, database, keep_last=3), SIZE)).assert_flat()


async def test_a_checkpoint_costs_as_much_as_are_kept(database: OpenDatabase) -> None:
    def scenario(size: int) -> Runs:
        return saving(database, 0, keep_last=size)

    (await measure(scenario, 75)).assert_linear()


async def with_checkpoint(database: OpenDatabase, size: int) -> Catalogue:
    opened = await catalogue(database, size)
    await write_checkpoint(opened.store, FIRST_STEP)
    await opened.report(make_written(FIRST_STEP))
    return opened


@pytest.mark.parametrize(
    ("kind", "subject"),
    [("list", ""), ("verify", key_of(FIRST_STEP)), ("read", key_of(FIRST_STEP)), ("tidy", "")],
)
async def test_a_look_at_a_job_costs_the_same_after_many_deleted_ones(
    kind: Kind, subject: str, database: OpenDatabase
) -> None:
    """Its listing, a checkpoint that is verified or read again, what is to be tidied."""

    async def scenario(size: int) -> Runs:
        opened = await with_checkpoint(database, size)
        while True:
            yield partial(opened.work, kind, subject)

    (await measure(scenario, SIZE)).assert_flat()


async def test_listings_of_live_jobs_cost_as_much_as_there_are(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With as many intents as are started read at once, few jobs are as many rounds as many.
    monkeypatch.setattr(store_intents, "_PER_JOB", 1)

    async def scenario(size: int) -> Runs:
        opened = await catalogue(database, 125 * size)
        for number in range(size):
            await opened.begin(job_id_for("default", str(number)))
        while True:
            await opened.execute("""
                insert into intents (kind, job_id, subject)
                select 'list', job_id, '' from runs where is_live
                on conflict (kind, job_id, subject) do update set due_at = now()
            """)
            yield opened.worker.drain

    (await measure(scenario, 8)).assert_linear()


async def test_what_waits_costs_nothing(database: OpenDatabase) -> None:
    """The worker asks each second whether something is due."""

    async def scenario(size: int) -> Runs:
        opened = await catalogue(database, size)
        while True:
            yield opened.worker.drain

    (await measure(scenario, SIZE)).assert_flat()


async def keep_house(opened: Catalogue) -> None:
    """What the worker does each half minute."""
    await pruning.prune_rows(opened.database)
    await opened.worker.actions.reader.want_reread()
    async with opened.database.connection() as connection:
        await store.count_failing_runs(connection)


async def test_rows_that_stay_are_not_read(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        opened = await catalogue(database, size)
        while True:
            yield partial(keep_house, opened)

    (await measure(scenario, SIZE)).assert_flat()


async def test_rows_go_at_the_cost_of_their_number(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is asked to be read again as well."""
    monkeypatch.setattr(pruning, "ROWS_PER_STEP", 5000)

    async def scenario(size: int) -> Runs:
        opened = await catalogue(database, 3 * SIZE)
        first = 3 * SIZE
        while True:
            await opened.add_history(first, size, OLD)
            first += size
            yield partial(keep_house, opened)
            await opened.execute("delete from intents where kind = 'read'")

    (await measure(scenario, 150)).assert_linear()


async def test_a_pass_deletes_a_bounded_number_of_rows(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "ROWS_PER_STEP", 50)

    async def scenario(size: int) -> Runs:
        opened = await catalogue(database)
        await opened.add_history(SIZE, size, OLD)
        while True:
            yield partial(pruning.prune_rows, opened.database)

    (await measure(scenario, 2 * SIZE)).assert_flat()
