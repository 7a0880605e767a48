"""Budgets that are used up, as the scheduler keeps them."""

from datetime import UTC, datetime

from drivetrain_schemas.budgets import (
    AtLimit,
    BudgetReached,
    BudgetReleased,
    BudgetRemoved,
    BudgetSpec,
)
from services.runtime.database import Database
from services.scheduler import holds
from services.scheduler.core.holds import Hold
from tests.conftest import OpenDatabase
from tests.events import make_event

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def reached(action: AtLimit, percent: int = 100) -> BudgetReached:
    return BudgetReached(
        tenant_id="vision",
        name="spring",
        version=1,
        percent=percent,
        action=action,
        spent_micro_usd=500_120_000,
        spec=BudgetSpec(limit_micro_usd=500_000_000, at_limit=action),
        reached_at=NOW,
    )


RELEASED = BudgetReleased(
    tenant_id="vision",
    name="spring",
    version=2,
    reason="changed",
    spent_micro_usd=1,
    released_at=NOW,
)
REMOVED = BudgetRemoved(tenant_id="vision", name="spring", version=2, removed_at=NOW)


async def after(
    db: Database, *payloads: BudgetReached | BudgetReleased | BudgetRemoved
) -> tuple[Hold, ...]:
    async with db.transaction() as tx:
        for payload in payloads:
            await holds.handle(tx, make_event(payload, tenant_id="vision"))
        return await holds.read(tx.connection)


async def test_hold_and_stop_hold_back_until_released_or_removed(database: OpenDatabase) -> None:
    db = await database("scheduler")
    detail = "the budget spring is used up: its limit of $500.00 is spent"
    held = (Hold("vision", "spring", detail),)
    for action in (AtLimit.HOLD, AtLimit.STOP):
        for end in (RELEASED, REMOVED):
            assert await after(db, reached(action)) == held
            assert await after(db, reached(action)) == held
            assert await after(db, end) == ()


async def test_warnings_hold_nothing_back(database: OpenDatabase) -> None:
    db = await database("scheduler")
    assert await after(db, reached(AtLimit.WARN), reached(AtLimit.WARN, 80)) == ()


async def test_a_budget_that_only_warns_from_now_on_ends_its_hold(database: OpenDatabase) -> None:
    db = await database("scheduler")
    assert await after(db, reached(AtLimit.HOLD), RELEASED, reached(AtLimit.WARN)) == ()


async def test_a_hold_of_a_project_is_kept(database: OpenDatabase) -> None:
    db = await database("scheduler")
    spec = BudgetSpec(limit_micro_usd=500_000_000, at_limit=AtLimit.HOLD, project="robots")
    (hold,) = await after(db, reached(AtLimit.HOLD).model_copy(update={"spec": spec}))
    assert hold.project == "robots"
