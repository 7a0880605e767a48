"""What the trials of each study have used and cost: rows of its allocations and charges.

Slots that are held now, or are released and not charged yet, count at the price of the study's last
charge, so that charges that are still to come do not take it over its limit. Before the first
charge of a study they count at the price that was last paid for such devices by any tenant.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.charges import ChargeRecorded
from services.hpo.core.inputs import Spent
from services.hpo.core.limits import Limits

_HOUR = 3600.0
_DELETE_ALLOCATIONS = "delete from trial_allocations where allocation_id = any($1)"
_INSERT_ALLOCATIONS = """
insert into trial_allocations (allocation_id, study_id, num_slots, granted_at, pool, device_type)
select * from unnest($1::text[], $2::text[], $3::int[], $4::timestamptz[], $5::text[], $6::text[])
on conflict do nothing
"""
_ADD_USED = """
insert into spending as s (study_id, slot_seconds) select * from unnest($1::text[], $2::float8[])
on conflict (study_id) do update set slot_seconds = s.slot_seconds + excluded.slot_seconds
"""
_ADD_CHARGED = """
insert into spending as s
    (study_id, charged_slot_seconds, micro_usd, price_micro_usd_per_slot_hour)
select * from unnest($1::text[], $2::float8[], $3::bigint[], $4::bigint[])
on conflict (study_id) do update set
    charged_slot_seconds = s.charged_slot_seconds + excluded.charged_slot_seconds,
    micro_usd = s.micro_usd + excluded.micro_usd,
    price_micro_usd_per_slot_hour = excluded.price_micro_usd_per_slot_hour
"""
# A row is written, and locked, only where its price changes.
_SAVE_PRICES = """
insert into device_prices as p (pool, device_type, price_micro_usd_per_slot_hour)
select new.pool, new.device_type, new.price
from unnest($1::text[], $2::text[], $3::bigint[]) as new (pool, device_type, price)
where not exists (
    select from device_prices as known
    where known.pool = new.pool and known.device_type = new.device_type
        and known.price_micro_usd_per_slot_hour = new.price)
on conflict (pool, device_type) do update
    set price_micro_usd_per_slot_hour = excluded.price_micro_usd_per_slot_hour
"""


@dataclass(slots=True)
class _Charged:
    slot_seconds: float = 0.0
    micro_usd: int = 0
    price: int = 0


class Changes:
    """What the events of one transaction change; `write` does it by a statement for each kind."""

    def __init__(self) -> None:
        self._granted: dict[str, tuple[Any, ...]] = {}
        self._released: list[str] = []
        self._slot_seconds: defaultdict[str, float] = defaultdict(float)
        self._charged: defaultdict[str, _Charged] = defaultdict(_Charged)
        self._prices: dict[tuple[str, str], int] = {}

    def grant(self, study_id: str, granted: AllocationGranted) -> None:
        row = (
            granted.allocation_id,
            study_id,
            len(granted.slots),
            granted.granted_at,
            granted.pool,
            granted.device_type,
        )
        self._granted.setdefault(granted.allocation_id, row)

    def release(self, study_id: str, released: AllocationReleased) -> None:
        seconds = max(0.0, (released.paid_ends_at - released.granted_at).total_seconds())
        self._granted.pop(released.allocation_id, None)
        self._released.append(released.allocation_id)
        self._slot_seconds[study_id] += seconds * len(released.slots)

    def note_price(self, charged: ChargeRecorded) -> None:
        """What devices of this kind cost now."""
        kind = (charged.pool, charged.device_type)
        self._prices[kind] = charged.price_micro_usd_per_slot_hour

    def charge(self, study_id: str, charged: ChargeRecorded) -> None:
        seconds = (charged.ends_at - charged.starts_at).total_seconds() * charged.num_slots
        known = self._charged[study_id]
        known.slot_seconds += -seconds if charged.reverses_charge_id else seconds
        known.micro_usd += charged.amount_micro_usd
        known.price = charged.price_micro_usd_per_slot_hour

    async def write(self, connection: asyncpg.Connection) -> None:
        """Rows are locked in one order, so that two transactions do not wait for each other."""
        charged = (
            (study_id, one.slot_seconds, one.micro_usd, one.price)
            for study_id, one in sorted(self._charged.items())
        )
        prices = ((*kind, price) for kind, price in sorted(self._prices.items()))
        if self._released:
            await connection.execute(_DELETE_ALLOCATIONS, self._released)
        for statement, rows in (
            (_INSERT_ALLOCATIONS, self._granted.values()),
            (_ADD_USED, sorted(self._slot_seconds.items())),
            (_ADD_CHARGED, charged),
            (_SAVE_PRICES, prices),
        ):
            if columns := [*zip(*rows, strict=True)]:
                await connection.execute(statement, *columns)


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


async def device_seconds(connection: asyncpg.Connection, study_id: str) -> float:
    """Of the slots that the study's trials have released."""
    seconds: float | None = await connection.fetchval(
        "select slot_seconds from spending where study_id = $1", study_id
    )
    return seconds or 0.0


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
