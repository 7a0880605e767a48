"""What the trials of each study have used and cost: rows of its allocations and charges.

Slots that are held now, or are released and not charged yet, cost what the last charge of the study
says, so a limit is not crossed by the charges that are still to come. A study is charged when its
first slots are released; until then they cost what anybody last paid for such devices.
"""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.charges import ChargeRecorded
from services.hpo.core.inputs import Spent
from services.hpo.core.limits import Limits

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Held:
    """The trial whose job an allocation belongs to."""

    study_id: str
    number: int


async def grant(connection: asyncpg.Connection, held: Held, granted: AllocationGranted) -> None:
    await connection.execute(
        """
        insert into trial_allocations
            (allocation_id, study_id, number, num_slots, granted_at, pool, device_type)
        values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing
        """,
        granted.allocation_id,
        held.study_id,
        held.number,
        len(granted.slots),
        granted.granted_at,
        granted.pool,
        granted.device_type,
    )


async def release(connection: asyncpg.Connection, held: Held, released: AllocationReleased) -> None:
    until = released.paid_ends_at or released.released_at
    seconds = max(0.0, (until - released.granted_at).total_seconds())
    await connection.execute(
        """
        with freed as (delete from trial_allocations where allocation_id = $2)
        insert into spending as s (study_id, slot_seconds) values ($1, $3)
        on conflict (study_id) do update set slot_seconds = s.slot_seconds + excluded.slot_seconds
        """,
        held.study_id,
        released.allocation_id,
        seconds * len(released.slots),
    )


async def note_price(connection: asyncpg.Connection, charged: ChargeRecorded) -> None:
    """What devices of this kind cost now; a row is written, and locked, only when that changes."""
    await connection.execute(
        """
        insert into device_prices as p (pool, device_type, price_micro_usd_per_slot_hour)
        select $1, $2, $3 where not exists (
            select from device_prices where pool = $1 and device_type = $2
                and price_micro_usd_per_slot_hour = $3)
        on conflict (pool, device_type) do update
            set price_micro_usd_per_slot_hour = excluded.price_micro_usd_per_slot_hour
        """,
        charged.pool,
        charged.device_type,
        charged.price_micro_usd_per_slot_hour,
    )


async def charge(connection: asyncpg.Connection, study_id: str, charged: ChargeRecorded) -> None:
    seconds = (charged.ends_at - charged.starts_at).total_seconds() * charged.num_slots
    sign = -1 if charged.reverses_charge_id else 1
    await connection.execute(
        """
        insert into spending as s
            (study_id, charged_slot_seconds, micro_usd, price_micro_usd_per_slot_hour)
        values ($1, $2, $3, $4)
        on conflict (study_id) do update set
            charged_slot_seconds = s.charged_slot_seconds + excluded.charged_slot_seconds,
            micro_usd = s.micro_usd + excluded.micro_usd,
            price_micro_usd_per_slot_hour = excluded.price_micro_usd_per_slot_hour
        """,
        study_id,
        sign * seconds,
        charged.amount_micro_usd,
        charged.price_micro_usd_per_slot_hour,
    )


async def spent(
    connection: asyncpg.Connection, study_id: str, started_at: datetime | None, now: datetime
) -> Spent:
    """What the study has used until `now`."""
    row = await connection.fetchrow(
        """
        select coalesce(max(slot_seconds), 0) as released,
               coalesce(max(charged_slot_seconds), 0) as charged,
               coalesce(max(micro_usd), 0) as micro_usd,
               coalesce(
                   nullif(max(price_micro_usd_per_slot_hour), 0),
                   (select max(p.price_micro_usd_per_slot_hour)
                    from trial_allocations join device_prices as p using (pool, device_type)
                    where study_id = $1),
                   0) as price,
               (select coalesce(sum(num_slots
                    * greatest(extract(epoch from $2::timestamptz - granted_at), 0)), 0)
                from trial_allocations where study_id = $1)::double precision as held
        from spending where study_id = $1
        """,
        study_id,
        now,
    )
    assert row is not None, "a sum has one row"
    slot_seconds = row["released"] + row["held"]
    open_usd = max(0.0, slot_seconds - row["charged"]) / _HOUR * row["price"] / 1e6
    hours = 0.0 if started_at is None else (now - started_at).total_seconds() / _HOUR
    return Spent(slot_seconds / _HOUR, row["micro_usd"] / 1e6 + open_usd, max(0.0, hours))


async def watch(connection: asyncpg.Connection, study_id: str, limits: Limits) -> None:
    """Whether the clock is read for the study."""
    await connection.execute(
        "update studies set has_clock = $2 where study_id = $1", study_id, limits.need_a_clock
    )


async def with_clocks(connection: asyncpg.Connection) -> list[str]:
    """Studies that run and have a limit that time alone can cross."""
    rows = await connection.fetch(
        "select study_id from studies where finished_at is null and has_clock order by study_id"
    )
    return [row["study_id"] for row in rows]
