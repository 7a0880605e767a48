"""The tables of silences and of what they hold back: one function per statement, no rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from drivetrain_schemas.metrics import AlertKind
from drivetrain_schemas.silences import SilenceSpec
from services.metrics.core.silences import Silence


@dataclass(frozen=True, slots=True)
class SilenceRow:
    silence_id: str
    tenant_id: str
    spec: SilenceSpec
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery of an alert that was raised during a silence."""

    id: int
    event_id: str
    body: str
    tenant_id: str
    job_id: str
    run_id: str
    alert: str


async def now(connection: asyncpg.Connection) -> datetime:
    moment: datetime = await connection.fetchval("select clock_timestamp()")
    return moment


async def lock(
    connection: asyncpg.Connection, tenant_id: str, silence_id: str
) -> SilenceRow | None:
    """Also one that is over, until its row is deleted."""
    row = await connection.fetchrow(
        "select * from silences where tenant_id = $1 and silence_id = $2 for update",
        tenant_id,
        silence_id,
    )
    if row is None:
        return None
    spec = SilenceSpec(
        alert=None if row["alert"] is None else AlertKind(row["alert"]),
        job_id=row["job_id"],
        project=row["project"],
        ends_at=row["ends_at"],
        reason=row["reason"],
    )
    return SilenceRow(row["silence_id"], row["tenant_id"], spec, row["created_at"])


async def num_in_force(connection: asyncpg.Connection, tenant_id: str, except_id: str) -> int:
    found: int = await connection.fetchval(
        """select count(*) from silences
        where tenant_id = $1 and silence_id <> $2 and ends_at > statement_timestamp()""",
        tenant_id,
        except_id,
    )
    return found


async def put(connection: asyncpg.Connection, row: SilenceRow) -> None:
    await connection.execute(
        """insert into silences
            (silence_id, tenant_id, alert, job_id, project, ends_at, reason, created_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (silence_id) do update set ends_at = excluded.ends_at,
            reason = excluded.reason, created_at = excluded.created_at""",
        row.silence_id,
        row.tenant_id,
        row.spec.alert,
        row.spec.job_id,
        row.spec.project,
        row.spec.ends_at,
        row.spec.reason,
        row.created_at,
    )


async def delete(connection: asyncpg.Connection, silence_id: str) -> None:
    await connection.execute("delete from silences where silence_id = $1", silence_id)


async def in_force(
    connection: asyncpg.Connection, tenant_id: str, *, lock: bool = False
) -> Sequence[Silence]:
    """Those of the tenant. `lock`: none of them is changed before the end of this transaction, so
    that what is held back for one is there when it is ended."""
    rows = await connection.fetch(
        f"""select alert, job_id, project, ends_at from silences
        where tenant_id = $1 and ends_at > statement_timestamp()
        order by silence_id {"for share" if lock else ""}""",
        tenant_id,
    )
    return [Silence(**dict(row)) for row in rows]


async def hold(
    connection: asyncpg.Connection, webhook: str, held: Held, until: datetime, at_most: int
) -> bool:
    """False where so many are held back for this webhook already. `held.id` is not used."""
    row = await connection.fetchval(
        """insert into held_deliveries
            (webhook, event_id, body, tenant_id, job_id, run_id, alert, held_until)
        select $1, $2, $3, $4, $5, $6, $7, $8
        where (select count(*) from (
            select from held_deliveries where webhook = $1 limit $9) waiting) < $9
        on conflict (webhook, event_id) do nothing returning 1""",
        webhook,
        held.event_id,
        held.body,
        held.tenant_id,
        held.job_id,
        held.run_id,
        held.alert,
        until,
        at_most,
    )
    return row is not None


async def forget_held(connection: asyncpg.Connection, webhook: str, run_id: str, alert: str) -> int:
    """How much of this alert was held back."""
    status = await connection.execute(
        "delete from held_deliveries where webhook = $1 and run_id = $2 and alert = $3",
        webhook,
        run_id,
        alert,
    )
    return int(status.split()[1])


async def num_raised(connection: asyncpg.Connection, run_id: str, alert: str) -> int:
    """About how many series, or 1 where it is about the run."""
    found: int = await connection.fetchval(
        "select count(*) from alerts where run_id = $1 and alert = $2", run_id, alert
    )
    return found


async def look_again(connection: asyncpg.Connection, tenant_id: str) -> None:
    """A silence of the tenant has changed: what is held back is judged again at once."""
    await connection.execute(
        "update held_deliveries set held_until = clock_timestamp() where tenant_id = $1", tenant_id
    )


async def lock_due(connection: asyncpg.Connection, webhook: str, limit: int) -> list[Held]:
    """In the order in which they were held back."""
    rows = await connection.fetch(
        """select id, event_id, body, tenant_id, job_id, run_id, alert from held_deliveries
        where webhook = $1 and held_until <= statement_timestamp()
        order by id limit $2 for update skip locked""",
        webhook,
        limit,
    )
    return [Held(**dict(row)) for row in rows]


async def hold_longer(connection: asyncpg.Connection, held: Held, until: datetime) -> None:
    await connection.execute(
        "update held_deliveries set held_until = $2 where id = $1", held.id, until
    )


async def end_hold(connection: asyncpg.Connection, held: Held) -> None:
    await connection.execute("delete from held_deliveries where id = $1", held.id)


async def is_open(connection: asyncpg.Connection, run_id: str, alert: str) -> bool:
    """All alerts of a run end with it, at the latest."""
    found: bool = await connection.fetchval(
        """select exists (select from alerts
            where run_id = $1 and alert = $2 and cleared_at is null)""",
        run_id,
        alert,
    )
    return found
