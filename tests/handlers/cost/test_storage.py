"""Stored checkpoints are charged by the day, exactly once, whatever comes late."""

import itertools
import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from drivetrain_schemas.checkpoints import CheckpointCommitted, CheckpointDeleted
from drivetrain_schemas.ids import checkpoint_id_for, job_id_for, run_id_for
from services.cost import store_storage
from services.cost.api import read_api
from services.cost.core.prices import PriceBook
from services.cost.core.storage import StoragePrice, StoragePrices
from services.cost.retention import rules
from services.cost.storage import StorageCharging, take
from services.runtime.database import Database
from services.runtime.retention import Retention
from tests.conftest import OpenDatabase
from tests.events import handle_batch
from tests.fakes import ManualClock
from tests.handlers.cost.test_pools import at, committed

MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
DAY = timedelta(days=1)
JOB = job_id_for("vision", "one")
# A dollar for a gigabyte and day, from February the 3rd two.
PRICES = StoragePrices(
    (
        StoragePrice("old", date(2026, 1, 1), 30_000_000),
        StoragePrice("new", date(2026, 2, 3), 60_000_000),
    )
)
BOOK = PriceBook((), PRICES)
GB = 10**9
RUN = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}


def stored(number: int, size_bytes: int = GB) -> CheckpointCommitted:
    key = f"checkpoints/vision/{JOB}/step-{number}/manifest.json"
    update = {
        "checkpoint_id": checkpoint_id_for(key),
        "manifest_key": key,
        "step": number,
        "size_bytes": size_bytes,
    }
    return committed().model_copy(update=update)


def deleted(number: int, size_bytes: int = GB) -> CheckpointDeleted:
    facts = stored(number, size_bytes)
    shared = facts.model_dump(include=set(CheckpointDeleted.model_fields))
    return CheckpointDeleted(**shared, reason="keep_last")


async def deliver(db: Database, *events: Any) -> None:
    await handle_batch(db, take, *events)


async def charge(db: Database, now: datetime) -> None:
    platform: Any = type("Platform", (), {"database": db})
    await StorageCharging(PRICES).look(platform, now)


async def amounts(db: Database) -> dict[date, int]:
    async with db.connection() as connection:
        rows = await connection.fetch(
            "select day, sum(amount_micro_usd)::bigint as amount from storage_charges group by 1"
        )
        total = await store_storage.charged_to(connection, "job", JOB)
        assert total == await store_storage.charged_to(connection, "tenant", "vision")
    found = {row["day"]: row["amount"] for row in rows if row["amount"]}
    assert sum(found.values()) == total
    return found


async def test_each_day_is_charged_once_at_its_price(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, at(stored(1), MIDNIGHT + DAY / 2), at(stored(2), MIDNIGHT + DAY))
    await deliver(db, at(deleted(2), MIDNIGHT + 2.25 * DAY))
    await charge(db, MIDNIGHT + 3 * DAY)  # the last day is over since no hour
    assert await amounts(db) == {date(2026, 2, 1): 500_000, date(2026, 2, 2): 2_000_000}
    for _ in range(2):
        await charge(db, MIDNIGHT + 3.1 * DAY)
    assert await amounts(db) == {
        date(2026, 2, 1): 500_000,
        date(2026, 2, 2): 2_000_000,
        date(2026, 2, 3): 2_500_000,
    }


EVENTS = (
    at(stored(1), MIDNIGHT + DAY / 2),
    at(stored(2), MIDNIGHT + DAY),
    at(deleted(1), MIDNIGHT + 1.5 * DAY),
    at(stored(3, 3), MIDNIGHT + 2.123456789 * DAY),
)


@pytest.mark.parametrize("late", range(len(EVENTS) + 1))
async def test_what_comes_late_corrects_the_days_to_the_same_sum(
    database: OpenDatabase, late: int
) -> None:
    db = await database("cost")
    await deliver(db, *EVENTS[:late])
    await charge(db, MIDNIGHT + 3.1 * DAY)
    await deliver(db, *EVENTS[late:], *EVENTS)
    await charge(db, MIDNIGHT + 3.1 * DAY)
    assert await amounts(db) == {
        date(2026, 2, 1): 500_000,
        date(2026, 2, 2): 1_500_000,
        date(2026, 2, 3): 2_000_000,
    }


async def test_a_day_that_broke_off_is_ended(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = await database("cost")
    await deliver(db, at(stored(1), MIDNIGHT))
    calls = itertools.count()
    jobs_of = store_storage.jobs_of

    async def broken(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise asyncpg.ConnectionDoesNotExistError("killed")
        return await jobs_of(*arguments)

    monkeypatch.setattr(store_storage, "jobs_of", broken)
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await charge(db, MIDNIGHT + 1.1 * DAY)
    await charge(db, MIDNIGHT + 1.1 * DAY)
    assert await amounts(db) == {date(2026, 2, 1): 1_000_000}
    async with db.connection() as connection:
        assert await connection.fetchval("select bool_and(is_charged) from storage_days")


async def test_storage_charges_cannot_be_changed(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, at(stored(1), MIDNIGHT))
    await charge(db, MIDNIGHT + 1.1 * DAY)
    async with db.connection() as connection:
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await connection.execute("update storage_charges set amount_micro_usd = 0")


@pytest.mark.parametrize(("tenant_id", "job_id"), [("vision", JOB), ("speech", None)])
async def test_the_report_has_lines_of_storage(
    database: OpenDatabase, tenant_id: str, job_id: str | None
) -> None:
    db = await database("cost")
    await deliver(db, *EVENTS)
    await charge(db, MIDNIGHT + 3.1 * DAY)
    platform: Any = type("Platform", (), {"database": db})
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        query = {"first": "2026-02-02", "last": "2026-02-03"}
        answer = await client.get(f"/chargeback/{tenant_id}", params=query)
    *lines, _ = map(json.loads, answer.text.splitlines())
    assert [(line["day"], line["micro_usd"], line["job_id"]) for line in lines] == [
        ("2026-02-02", 1_500_000, job_id),
        ("2026-02-03", 2_000_000, job_id),
    ]
    assert lines[0]["byte_microseconds"] == 1.5 * GB * 86_400_000_000
    assert {line["tenant_id"] for line in lines} == {tenant_id if job_id else "others"}


async def test_what_was_stored_before_the_first_charged_day_is_charged(
    database: OpenDatabase,
) -> None:
    """Its events are read later than those of the first day that was charged."""
    db = await database("cost")
    await deliver(db, at(stored(2), MIDNIGHT + DAY))
    await charge(db, MIDNIGHT + 2.1 * DAY)
    assert await amounts(db) == {date(2026, 2, 2): 1_000_000}
    await deliver(db, at(stored(1), MIDNIGHT - 31 * DAY), at(deleted(1), MIDNIGHT + 1.5 * DAY))
    await charge(db, MIDNIGHT + 2.1 * DAY)
    found = await amounts(db)
    assert len(found) == 33
    assert set(found.values()) == {1_000_000, 1_500_000}
    assert found[date(2026, 2, 2)] == 1_500_000
    async with db.connection() as connection:
        assert await connection.fetchval("select count(*) from storage_due") == 0


@pytest.mark.parametrize("is_priced", [True, False])
async def test_a_deleted_checkpoint_is_kept_until_it_is_charged(
    database: OpenDatabase, is_priced: bool
) -> None:
    """Charging may have stood still for as long as rows are kept."""
    db = await database("cost")
    await deliver(db, at(stored(1), MIDNIGHT), at(deleted(1), MIDNIGHT + 1.5 * DAY))
    prices = PRICES if is_priced else StoragePrices()
    retention = Retention(db, "t.", ManualClock(), rules(prices))
    async with db.connection() as connection:
        await retention.prune()
        left = "select count(*) from stored_checkpoints"
        assert await connection.fetchval(left) == is_priced
        await charge(db, MIDNIGHT + 1.1 * DAY)
        await retention.prune()  # one of its two days is charged
        assert await connection.fetchval(left) == is_priced
        await charge(db, MIDNIGHT + 2.1 * DAY)
        await retention.prune()
        assert await connection.fetchval(left) == 0
    if is_priced:
        assert await amounts(db) == {date(2026, 2, 1): 1_000_000, date(2026, 2, 2): 500_000}
