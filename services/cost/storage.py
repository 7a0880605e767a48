"""Charges for stored checkpoints: what events tell of them, and the task that charges each day.

A day is charged an hour after its end. What is learned of it later reverses the charge of the job's
day and replaces it, so the result is the same in whatever order events and charging come.
"""

from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

from drivetrain_schemas.checkpoints import CheckpointCommitted, CheckpointDeleted
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import charge_id_for
from services.cost import store, store_storage
from services.cost.core.charges import reversal_id_of
from services.cost.core.storage import StoragePrices, amount_micro_usd, days_to_charge
from services.cost.instruments import STORAGE_CHARGED
from services.cost.store_storage import StorageCharge
from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

KINDS = (CheckpointCommitted, CheckpointDeleted)
LOOK_SECONDS = 300.0
BATCH = 200


async def handle(tx: Tx, event: Event[Any], prices: StoragePrices) -> None:
    """Keep what the event tells, and correct the days that are charged already."""
    told = event.payload
    if isinstance(told, CheckpointCommitted):
        is_news = await store_storage.put(
            tx.connection,
            told.checkpoint_id,
            told.tenant_id,
            told.job_id,
            told.size_bytes,
            event.occurred_at,
        )
    else:
        is_news = await store_storage.set_deleted(
            tx.connection, told.checkpoint_id, event.occurred_at
        )
    if is_news:
        first = event.occurred_at.astimezone(UTC).date()
        for day in await store_storage.begun_since(tx.connection, first):
            await charge(tx, told.job_id, told.tenant_id, day, prices)


async def charge(tx: Tx, job_id: str, tenant_id: str, day: date, prices: StoragePrices) -> None:
    """Charge the job for the day; nothing changes where the charge is right already."""
    price = prices.on(day)
    if price is None:
        return
    await store_storage.lock_job(tx.connection, job_id)
    time_of_bytes = await store_storage.byte_microseconds(tx.connection, job_id, _midnight(day))
    before = await store_storage.current(tx.connection, job_id, day)
    if (before.byte_microseconds if before else 0) == time_of_bytes:
        return
    if before is not None:
        await store_storage.add(tx.connection, _reversal(before))
    correction = await store_storage.num_charges(tx.connection, job_id, day)
    new = StorageCharge(
        charge_id=charge_id_for(f"storage of {job_id} on {day}", f"{price.price_id}#{correction}"),
        tenant_id=tenant_id,
        job_id=job_id,
        day=day,
        byte_microseconds=time_of_bytes,
        price_id=price.price_id,
        micro_usd_per_gb_month=price.micro_usd_per_gb_month,
        amount_micro_usd=amount_micro_usd(time_of_bytes, price),
        correction=correction,
    )
    await store_storage.add(tx.connection, new)
    more = new.amount_micro_usd - (before.amount_micro_usd if before else 0)
    tx.after_commit(lambda: STORAGE_CHARGED.inc(max(more, 0) / 1_000_000))


class StorageCharging:
    """A task of the service."""

    def __init__(self, prices: StoragePrices) -> None:
        self._prices = prices

    async def run(self, platform: Platform) -> None:
        while not platform.stopping.is_set():
            try:
                await self.look(platform)
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning("stored checkpoints not charged", error=repr(error))
            await platform.clock.sleep(LOOK_SECONDS)

    async def look(self, platform: Platform, now: datetime | None = None) -> None:
        """Charge the days that are due, and those that were begun and not ended."""
        async with platform.database.connection() as connection:
            now = now or await store.now(connection)
            last, days = await store_storage.days_begun(connection)
            first = await store_storage.first_stored(connection)
        for day in [*days, *days_to_charge(first, last, self._prices, now)]:
            async with platform.database.transaction() as tx:
                await store_storage.begin(tx.connection, day)
            await self._charge_day(platform, day)
            log.info("stored checkpoints charged", day=day.isoformat())

    async def _charge_day(self, platform: Platform, day: date) -> None:
        after = ""
        while True:
            async with platform.database.transaction() as tx:
                jobs = await store_storage.jobs_of(tx.connection, after, _midnight(day), BATCH)
                for job_id, tenant_id in jobs:
                    await charge(tx, job_id, tenant_id, day, self._prices)
                if not jobs:
                    await store_storage.end(tx.connection, day)
                    return
            after = jobs[-1][0]


def _reversal(charge: StorageCharge) -> StorageCharge:
    return replace(
        charge,
        charge_id=reversal_id_of(charge.charge_id),
        byte_microseconds=-charge.byte_microseconds,
        amount_micro_usd=-charge.amount_micro_usd,
        reverses_charge_id=charge.charge_id,
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
