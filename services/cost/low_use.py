"""When the devices of runs were used too little, or not at all, and what was paid for that time.

The metrics service raises and clears alerts about it: low utilisation of devices, and a run that
makes no step. What is paid is known from the charges, so a run counts once its slots were released.
"""

from datetime import date, timedelta
from functools import partial
from typing import Any

import asyncpg

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from services.cost.core.recommendations import LowUse
from services.cost.core.steps import midnight
from services.cost.instruments import LOW_USE
from services.cost.store import IN_FORCE
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

KINDS = (AlertRaised, AlertCleared)
# Times that began longer before the first day are not looked for.
LONGEST = timedelta(days=92)

_PAID = f"""
with paid as (
    select low_use.job_id, used_percent, expected_percent, num_slots,
        price_micro_usd_per_slot_hour as price,
        extract(epoch from least(charges.ends_at, low_use.ends_at, $3)
            - greatest(charges.starts_at, low_use.starts_at, $2)) / 3600 as hours
    from low_use join charges using (job_id, run_id)
    where low_use.tenant_id = $1 and low_use.starts_at between $2 - $4::interval and $3
        and alert = $6 and {IN_FORCE}),
of_job as (
    select job_id,
        sum(hours * num_slots) as slot_hours,
        sum(hours * num_slots * used_percent) / sum(hours * num_slots) as used_percent,
        max(expected_percent) as expected_percent,
        floor(sum(hours * num_slots * price))::bigint as micro_usd,
        floor(sum((hours * num_slots * price)::double precision
            * (1 - used_percent / expected_percent)))::bigint as saving_micro_usd
    from paid where hours > 0 group by job_id)
select of_job.*, name from of_job left join jobs using (job_id)
order by saving_micro_usd desc, job_id limit $5
"""


async def handle(tx: Tx, event: Event[Any]) -> None:
    """Keep when low use of a run's devices began and ended; other alerts say nothing of money."""
    told = event.payload
    if told.alert not in (AlertKind.LOW_UTILISATION, AlertKind.STALLED):
        return
    if isinstance(told, AlertCleared):
        status = await tx.connection.execute(
            """
            update low_use set ends_at = $3
            where run_id = $1 and alert = $2 and ends_at is null and starts_at < $3
            """,
            told.run_id,
            told.alert,
            event.occurred_at,
        )
    elif (figures := _figures(told)) is not None:
        status = await tx.connection.execute(
            """
            insert into low_use (run_id, starts_at, tenant_id, job_id, alert, used_percent,
                expected_percent)
            values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing
            """,
            told.run_id,
            event.occurred_at,
            event.tenant_id,
            told.job_id,
            told.alert,
            *figures,
        )
    else:
        return
    if not status.endswith(" 0"):  # told again after its inbox row was pruned
        tx.after_commit(partial(_observe, told))


def _observe(told: AlertRaised | AlertCleared) -> None:
    state = "ended" if isinstance(told, AlertCleared) else "began"
    LOW_USE.labels(told.alert, state).inc()
    log.info("low use of devices " + state, job_id=told.job_id, alert=told.alert)


def _figures(told: AlertRaised) -> tuple[float, float] | None:
    """How much of the devices was used, and how much is expected, in percent."""
    if told.alert is AlertKind.STALLED:
        return 0.0, 100.0
    used, expected = told.value, told.threshold
    if used is None or expected is None or not 0 <= used < expected <= 100:
        return None
    return used, expected


async def paid_for(
    connection: asyncpg.Connection,
    alert: AlertKind,
    tenant_id: str,
    first: date,
    last: date,
    limit: int,
) -> list[LowUse]:
    """What the tenant's jobs paid on these days for such time: the largest savings."""
    rows = await connection.fetch(
        _PAID,
        tenant_id,
        midnight(first),
        midnight(last + timedelta(days=1)),
        LONGEST,
        limit,
        alert,
    )
    return [
        LowUse(
            row["job_id"],
            row["name"],
            float(row["slot_hours"]),
            row["used_percent"],
            row["expected_percent"],
            row["micro_usd"],
            row["saving_micro_usd"],
        )
        for row in rows
    ]
