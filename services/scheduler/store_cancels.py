"""The table of cancels that arrived before their job's request: one function per statement."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from drivetrain_schemas.envelope import Cause


@dataclass(frozen=True, slots=True)
class EarlyCancel:
    """`cause` is the command."""

    cause: Cause
    job_id: str
    tenant_id: str
    reason: str


async def insert(
    connection: asyncpg.Connection, cancel: EarlyCancel, limit: int, limit_of_tenant: int
) -> bool:
    """Store the cancel; False, without storing it, where as many are stored already."""
    number = await connection.fetchval(
        """insert into early_cancels
            (event_id, job_id, tenant_id, reason, correlation_id, traceparent)
        select $1, $2, $3, $4, $5, $6
        where (select count(*) from (select from early_cancels limit $7) as kept) < $7
            and (select count(*) from (
                select from early_cancels where tenant_id = $3 limit $8) as own) < $8
        returning number""",
        cancel.cause.event_id,
        cancel.job_id,
        cancel.tenant_id,
        cancel.reason,
        cancel.cause.correlation_id,
        cancel.cause.traceparent,
        limit,
        limit_of_tenant,
    )
    return number is not None


async def take(connection: asyncpg.Connection, job_ids: Collection[str]) -> Sequence[EarlyCancel]:
    """Delete and return those of these jobs, oldest first."""
    rows = await connection.fetch(
        "delete from early_cancels where job_id = any($1) returning *", list(job_ids)
    )
    return _cancels(rows)


async def take_older(
    connection: asyncpg.Connection, age: timedelta, limit: int
) -> Sequence[EarlyCancel]:
    """Delete and return the oldest of those that are older than `age`."""
    rows = await connection.fetch(
        """delete from early_cancels where number in (
            select number from early_cancels
            where received_at < clock_timestamp() - $1::interval
            order by number limit $2)
        returning *""",
        age,
        limit,
    )
    return _cancels(rows)


def _cancels(rows: Sequence[Any]) -> Sequence[EarlyCancel]:
    return [
        EarlyCancel(
            Cause(row["event_id"], row["correlation_id"], row["traceparent"]),
            row["job_id"],
            row["tenant_id"],
            row["reason"],
        )
        for row in sorted(rows, key=lambda row: row["number"])
    ]
