"""The table of commands that arrived before their job's request: one function per statement."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from drivetrain_schemas.envelope import Cause
from services.scheduler.core.wishes import Verb
from services.scheduler.job_commands import JobCommand


async def insert(
    connection: asyncpg.Connection, command: JobCommand, limit: int, limit_of_tenant: int
) -> bool:
    """Store the command; False, without storing it, where as many are stored already."""
    number = await connection.fetchval(
        """insert into early_commands
            (event_id, job_id, tenant_id, reason, correlation_id, traceparent, verb, saves_last)
        select $1, $2, $3, $4, $5, $6, $7, $8
        where (select count(*) from (select from early_commands limit $9) as kept) < $9
            and (select count(*) from (
                select from early_commands where tenant_id = $3 limit $10) as own) < $10
        returning number""",
        command.cause.event_id,
        command.job_id,
        command.tenant_id,
        command.reason,
        command.cause.correlation_id,
        command.cause.traceparent,
        str(command.verb),
        command.saves_last,
        limit,
        limit_of_tenant,
    )
    return number is not None


async def take(connection: asyncpg.Connection, job_ids: Collection[str]) -> Sequence[JobCommand]:
    """Delete and return those of these jobs, oldest first."""
    rows = await connection.fetch(
        "delete from early_commands where job_id = any($1) returning *", list(job_ids)
    )
    return _commands(rows)


async def take_older(
    connection: asyncpg.Connection, age: timedelta, limit: int
) -> Sequence[JobCommand]:
    """Delete and return the oldest of those that are older than `age`."""
    rows = await connection.fetch(
        """delete from early_commands where number in (
            select number from early_commands
            where received_at < statement_timestamp() - $1::interval
            order by number limit $2)
        returning *""",
        age,
        limit,
    )
    return _commands(rows)


def _commands(rows: Sequence[Any]) -> Sequence[JobCommand]:
    return [
        JobCommand(
            Verb(row["verb"]),
            Cause(row["event_id"], row["correlation_id"], row["traceparent"]),
            row["job_id"],
            row["tenant_id"],
            row["reason"],
            row["saves_last"],
        )
        for row in sorted(rows, key=lambda row: row["number"])
    ]
