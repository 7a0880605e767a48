"""Charges for stored checkpoints: what events tell of them, and the task that charges each day.

A day is charged an hour after its end. What is learned of it later reverses the charge of the job's
day and replaces it, so the result is the same in whatever order events and charging come.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from typing import Any

from drivetrain_schemas.checkpoints import CheckpointCommitted, CheckpointDeleted
from drivetrain_schemas.envelope import Event, InvalidEvent
from drivetrain_schemas.ids import charge_id_for
from services.cost import store, store_storage
from services.cost.core.charges import reversal_id_of
from services.cost.core.steps import midnight
from services.cost.core.storage import StoragePrices, amount_micro_usd, days_to_charge
from services.cost.instruments import STORAGE_CHARGED
from services.cost.store_storage import StorageCharge
from services.runtime import logs
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.processing import read_event
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

LOOK_SECONDS = 300.0
BATCH = 200


async def take(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
    """Keep the checkpoints of a batch of records; reading it again changes nothing.

    They are read from the first record on, in a group of their own: what is stored is charged for,
    however long it has been there.
    """
    events = [event for record in records if (event := _read(record)) is not None]
    connection = tx.connection
    await store_storage.put(
        connection, [event for event in events if isinstance(event.payload, CheckpointCommitted)]
    )
    await store_storage.set_deleted(
        connection, [event for event in events if isinstance(event.payload, CheckpointDeleted)]
    )
    return ()  # another service parks the unreadable records of this topic


def _read(record: Record) -> Event[Any] | None:
    try:
        return read_event(record)
    except InvalidEvent:
        return None


async def charge(tx: Tx, job_id: str, tenant_id: str, day: date, prices: StoragePrices) -> None:
    """Charge the job for the day; nothing changes where the charge is right already."""
    price = prices.on(day)
    if price is None:
        return
    await store_storage.lock_job(tx.connection, job_id)
    time_of_bytes = await store_storage.byte_microseconds(tx.connection, job_id, midnight(day))
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
        waits = "stored checkpoints not charged"
        await repeat(partial(self.look, platform), platform.clock, LOOK_SECONDS, waits)

    async def look(self, platform: Platform, now: datetime | None = None) -> None:
        """Charge the days that are due, and those that were begun and not ended."""
        async with platform.database.connection() as connection:
            now = now or await store.now(connection)
            begun, unfinished = await store_storage.days_begun(connection)
            first = await store_storage.first_stored(connection)
        for day in sorted([*unfinished, *days_to_charge(first, begun, self._prices, now)]):
            async with platform.database.transaction() as tx:
                await store_storage.begin(tx.connection, day)
            await self._charge_day(platform, day)
            log.info("stored checkpoints charged", day=day.isoformat())
        await self._correct(platform)

    async def _correct(self, platform: Platform) -> None:
        """Charge the days again of which something was learned after they were charged."""
        num_corrected = 0
        while True:
            async with platform.database.transaction() as tx:
                due = await store_storage.take_due(tx.connection)
                if due is None:
                    break
                for day in await store_storage.begun_since(tx.connection, due.first_day):
                    await charge(tx, due.job_id, due.tenant_id, day, self._prices)
            num_corrected += 1
        if num_corrected:
            log.info("charged days of checkpoints compared again", num_jobs=num_corrected)

    async def _charge_day(self, platform: Platform, day: date) -> None:
        after = ""
        while True:
            async with platform.database.transaction() as tx:
                jobs = await store_storage.jobs_of(tx.connection, after, midnight(day), BATCH)
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
