"""Usage without a price becomes a charge once its price is known: by a reversing row, and once."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain_schemas.charges import ChargeRecorded
from services.cost import corrections, store
from services.cost.core.prices import Price, PriceBook
from services.cost.corrections import Corrections
from services.cost.handlers import handlers
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, make_event
from tests.handlers.cost.test_handlers import BOOK, JOB, START, released

EMPTY = PriceBook(())
HELD = released(timedelta(hours=2), paid=timedelta(hours=1))


def book(valid_from: datetime, price_id: str = "late") -> PriceBook:
    return PriceBook((Price(price_id, "cpu", valid_from, 36_000_000),))


async def correct(db: Database, prices: PriceBook) -> list[ChargeRecorded]:
    """What a start with these prices adds."""
    before = len(await emitted(db))
    platform: Any = SimpleNamespace(database=db)
    await Corrections(prices).reprice(platform)
    return [
        event.payload
        for event in (await emitted(db))[before:]
        if isinstance(event.payload, ChargeRecorded)
    ]


async def total(db: Database) -> tuple[int, int]:
    """Of the tenant and of the job, which must agree."""
    async with db.connection() as connection:
        of_tenant = await store.charged_to(connection, "tenant", "default")
        assert of_tenant == await store.charged_to(connection, "job", JOB)
        kinds = await store.unpriced_of(connection, "tenant", "default")
        assert kinds == await store.unpriced_of(connection, "job", JOB)
    return of_tenant.charged_micro_usd, of_tenant.platform_micro_usd


async def test_it_is_charged_once(database: OpenDatabase) -> None:
    db = await database("cost")
    (unpriced,) = await handle(db, handlers(EMPTY), make_event(HELD))
    assert isinstance(unpriced, ChargeRecorded)

    back, new = await correct(db, BOOK)

    assert (back.reverses_charge_id, back.amount_micro_usd) == (unpriced.charge_id, 0)
    assert (new.price_id, new.amount_micro_usd) == ("cpu-2026", 72_000_000)
    assert (new.starts_at, new.ends_at) == (START, START + timedelta(hours=1))
    assert new.platform_micro_usd == 72_000_000
    assert await total(db) == (72_000_000, 72_000_000)
    async with db.connection() as connection:
        assert await store.unpriced_of(connection, "tenant", "default") == set()
    assert await correct(db, BOOK) == []
    assert await total(db) == (72_000_000, 72_000_000)


async def test_a_price_that_begins_too_late_changes_nothing(database: OpenDatabase) -> None:
    db = await database("cost")
    await handle(db, handlers(EMPTY), make_event(HELD))
    assert await correct(db, book(START + timedelta(hours=2))) == []


async def test_what_is_covered_in_part_is_charged_in_part_and_later_in_full(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    await handle(db, handlers(EMPTY), make_event(HELD))

    later = book(START + timedelta(minutes=30))
    back, rest, new = await correct(db, later)
    assert (rest.price_id, rest.amount_micro_usd) == ("unpriced", 0)
    assert (new.amount_micro_usd, new.platform_micro_usd) == (36_000_000, 72_000_000)
    assert await total(db) == (36_000_000, 72_000_000)
    assert await correct(db, later) == []

    both = PriceBook((*later.prices, *book(START, "early").prices))
    back, new = await correct(db, both)
    assert back.reverses_charge_id == rest.charge_id
    assert (new.price_id, new.amount_micro_usd) == ("early", 36_000_000)
    assert await total(db) == (72_000_000, 72_000_000)


async def test_charges_at_a_price_are_never_made_again(database: OpenDatabase) -> None:
    db = await database("cost")
    await handle(db, handlers(BOOK), make_event(HELD))
    assert await correct(db, book(datetime(2020, 1, 1, tzinfo=UTC))) == []


async def test_any_number_is_looked_through_in_steps(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corrections, "BATCH", 7)
    num_allocations = 30
    db = await database("cost")
    allocations = [
        HELD.model_copy(update={"allocation_id": f"{HELD.allocation_id[:-1]}{number}"})
        for number in range(1, num_allocations + 1)
    ]
    await handle(db, handlers(EMPTY), *map(make_event, allocations))
    assert len(await correct(db, BOOK)) == 2 * num_allocations
    assert await total(db) == (num_allocations * 72_000_000, num_allocations * 72_000_000)


def test_the_service_does_it_at_each_start() -> None:
    settings = CostSettings.model_validate(
        {"kafka_bootstrap_servers": "nowhere:1", "postgres_dsn": "postgresql://nowhere"}
    )
    assert "Corrections.run" in [task.__qualname__ for task in build(settings).tasks]
