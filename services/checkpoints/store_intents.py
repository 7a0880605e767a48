"""The statements about intents, the pending actions on the object store: one function each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg

Kind = Literal["list", "verify", "read", "restore", "delete", "tidy", "files"]


# A read that failed so often holds up nothing else.
_LASTING_TRIES = 3
# How many intents of one job a round skips on average.
_PER_JOB = 16


@dataclass(frozen=True, slots=True)
class Intent:
    """Something to be done at the object store."""

    kind: Kind
    job_id: str
    subject: str
    facts: Mapping[str, Any]
    revision: int
    tries: int


async def want(
    connection: asyncpg.Connection,
    kind: Kind,
    job_id: str,
    subject: str = "",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Request this action now. New facts are added to those of an existing request."""
    await connection.execute(
        """
        insert into intents (kind, job_id, subject, facts) values ($1, $2, $3, $4)
        on conflict (kind, job_id, subject) do update set
            facts = intents.facts || excluded.facts, revision = intents.revision + 1, tries = 0,
            due_at = clock_timestamp()
        """,
        kind,
        job_id,
        subject,
        dict(facts or {}),
    )


async def want_listing(connection: asyncpg.Connection, job_id: str) -> None:
    """A pod reports a checkpoint: list the job's now; after failures, when they are due again."""
    await connection.execute(
        """
        insert into intents (kind, job_id, subject, facts)
        values ('list', $1, '', '{"is_reported": true}')
        on conflict (kind, job_id, subject) do update set
            facts = intents.facts || excluded.facts, revision = intents.revision + 1,
            due_at = case when intents.tries = 0
                then least(intents.due_at, clock_timestamp()) else intents.due_at end
        """,
        job_id,
    )


async def want_in(
    connection: asyncpg.Connection,
    kind: Kind,
    job_id: str,
    subject: str,
    seconds: float,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Request this action by then, unless it is requested for an earlier time."""
    await connection.execute(
        """
        insert into intents (kind, job_id, subject, facts, due_at)
        values ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 second')
        on conflict (kind, job_id, subject) do update set
            revision = intents.revision + 1, due_at = least(intents.due_at, excluded.due_at)
        """,
        kind,
        job_id,
        subject,
        dict(facts or {}),
        seconds,
    )


async def want_if_unknown(
    connection: asyncpg.Connection, kind: Kind, job_id: str, subject: str
) -> None:
    """Request this action unless it is requested already."""
    await connection.execute(
        "insert into intents (kind, job_id, subject) values ($1, $2, $3) on conflict do nothing",
        kind,
        job_id,
        subject,
    )


async def is_wanted(
    connection: asyncpg.Connection, kinds: Collection[Kind], job_id: str, subject: str
) -> bool:
    found = await connection.fetchval(
        """
        select exists (
            select from intents where kind = any($1::text[]) and job_id = $2 and subject = $3)
        """,
        list(kinds),
        job_id,
        subject,
    )
    return bool(found)


async def due_intents(
    connection: asyncpg.Connection, *, is_read: bool, busy_jobs: Collection[str], limit: int
) -> list[Intent]:
    """Reads that are due, or all else that is: at most one of each job, none of a busy one.

    Those that have waited longest; of reads the newest, because an older checkpoint may be deleted
    before its turn comes.
    """
    # Each has an index of its own, so a round costs what it starts, not what is waiting. The index
    # is of use for a time that is one value for the statement, which clock_timestamp() is not.
    kinds, order = ("= 'read'", "desc") if is_read else ("<> 'read'", "asc")
    rows = await connection.fetch(
        f"""
        select * from intents
        where kind {kinds} and due_at <= statement_timestamp() and job_id <> all($1::text[])
        order by due_at {order} limit $2
        """,
        list(busy_jobs),
        limit * _PER_JOB,
    )
    first_of_job = {row["job_id"]: row for row in reversed(rows)}
    return [_intent(row) for row in rows if first_of_job[row["job_id"]] is row][:limit]


async def has_reads(connection: asyncpg.Connection) -> bool:
    """Whether any checkpoint waits to be read; one that cannot be read for long counts no more."""
    found = await connection.fetchval(
        "select exists (select from intents where kind = 'read' and tries < $1)", _LASTING_TRIES
    )
    return bool(found)


async def finish(connection: asyncpg.Connection, intent: Intent) -> bool:
    """Finish the intent. False where it was requested again meanwhile and stays."""
    row = await connection.fetchval(
        """
        delete from intents where kind = $1 and job_id = $2 and subject = $3 and revision = $4
        returning 1
        """,
        intent.kind,
        intent.job_id,
        intent.subject,
        intent.revision,
    )
    return row is not None


async def postpone(
    connection: asyncpg.Connection, intent: Intent, seconds: float, *, is_failure: bool
) -> None:
    """Delay the intent; one that was requested again meanwhile stays due."""
    await connection.execute(
        """
        update intents set
            due_at = clock_timestamp() + $5 * interval '1 second',
            tries = case when $6 then tries + 1 else 0 end
        where kind = $1 and job_id = $2 and subject = $3 and revision = $4
        """,
        intent.kind,
        intent.job_id,
        intent.subject,
        intent.revision,
        seconds,
        is_failure,
    )


async def repeat(connection: asyncpg.Connection, intent: Intent, seconds: float) -> None:
    """It is done, and due again then; one that was requested again meanwhile stays due."""
    await connection.execute(
        """
        update intents set
            due_at = clock_timestamp() + $5 * interval '1 second', tries = 0, facts = '{}'
        where kind = $1 and job_id = $2 and subject = $3 and revision = $4
        """,
        intent.kind,
        intent.job_id,
        intent.subject,
        intent.revision,
        seconds,
    )


async def end_turn(connection: asyncpg.Connection, intent: Intent) -> None:
    """This read goes on once all others that wait have had a turn: the newest is the next."""
    await connection.execute(
        """
        update intents set tries = 0, due_at = least(
            clock_timestamp(),
            (select min(due_at) from intents where kind = 'read') - interval '1 microsecond')
        where kind = $1 and job_id = $2 and subject = $3 and revision = $4
        """,
        intent.kind,
        intent.job_id,
        intent.subject,
        intent.revision,
    )


def _intent(row: Any) -> Intent:
    return Intent(
        kind=row["kind"],
        job_id=row["job_id"],
        subject=row["subject"],
        facts=row["facts"],
        revision=row["revision"],
        tries=row["tries"],
    )
