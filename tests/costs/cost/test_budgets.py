"""A comparison of all budgets with what is spent, as about once a second."""

from functools import partial

from drivetrain_schemas.budgets import AtLimit, BudgetPeriod, BudgetSpec
from services.cost import store_budgets
from services.cost.budget_watch import BudgetWatch
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.costs.cost.world import BOOK, TENANT, execute, job, world
from tests.costs.counting import Runs, measure

LIMIT = 10**15
# By what a budget is of. Half of them are of the whole tenant, and so of all that is held.
SUBJECTS = (
    lambda n: {},
    lambda n: {"project": f"p{n // 50}"},
    lambda n: {},
    lambda n: {"job_id": job(n, "held")},
)


async def of_history(database: OpenDatabase, size: int) -> Runs:
    platform = await world(database, num_ended=size, num_held=5)
    await set_budgets(platform.database, 20)
    while True:
        yield partial(BudgetWatch(BOOK).look, platform)


async def of_what_is_held(database: OpenDatabase, size: int) -> Runs:
    """As many budgets as allocations."""
    platform = await world(database, num_ended=100, num_held=size)
    await set_budgets(platform.database, size)
    while True:
        yield partial(BudgetWatch(BOOK).look, platform)


async def of_days(database: OpenDatabase, size: int) -> Runs:
    """Their subjects have spent on so many days."""
    platform = await world(database, num_ended=100, num_held=5)
    await execute(platform.database, f"{_DAYS.format(size=size)} analyze spend")
    await set_budgets(platform.database, 20)
    while True:
        yield partial(BudgetWatch(BOOK).look, platform)


_DAYS = """
insert into spend
    select tenant_id, subject, current_date - n, 1, current_date - n
    from (select distinct tenant_id, subject from spend) as known, generate_series(1, {size}) as n
on conflict do nothing;"""


async def set_budgets(db: Database, number: int) -> None:
    async with db.transaction() as tx:
        for n in range(number):
            period = tuple(BudgetPeriod)[n % 3]
            subject = SUBJECTS[n % len(SUBJECTS)](n)
            spec = BudgetSpec(
                limit_micro_usd=LIMIT - n, period=period, at_limit=AtLimit.STOP, **subject
            )
            await store_budgets.put_budget(tx.connection, TENANT, f"budget-{n}", spec)
        await tx.connection.execute("analyze budgets")


async def test_budgets_are_compared_without_reading_charges_again(database: OpenDatabase) -> None:
    (await measure(partial(of_history, database), 2500)).assert_flat()


async def test_no_budget_is_compared_by_reading_all_days_of_its_spend(
    database: OpenDatabase,
) -> None:
    """From 100 days to 400 a month's 31 are all that are read; a total is one row."""
    (await measure(partial(of_days, database), 100)).assert_flat()


async def test_each_budget_and_each_allocation_is_read_once(database: OpenDatabase) -> None:
    (await measure(partial(of_what_is_held, database), 75)).assert_linear()
