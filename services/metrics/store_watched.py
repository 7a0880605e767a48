"""The table of jobs that are watched: their project, and what their alerts are about."""

from collections.abc import Collection, Mapping, Sequence

import asyncpg
from pydantic import TypeAdapter

from drivetrain_schemas.specs import AlertRule
from services.metrics.core.watched import Watched

_RULES = TypeAdapter(tuple[AlertRule, ...])


async def insert(
    connection: asyncpg.Connection, job_id: str, project: str | None, watched: Watched
) -> None:
    await connection.execute(
        """insert into watched_jobs (job_id, project, losses, stalled_seconds, rules)
        values ($1, $2, $3, $4, $5) on conflict do nothing""",
        job_id,
        project,
        watched.losses,
        watched.stalled_seconds,
        _RULES.dump_json(watched.rules).decode() if watched.rules else None,
    )


async def rules_of(
    connection: asyncpg.Connection, job_ids: Collection[str]
) -> Mapping[str, Sequence[AlertRule]]:
    """Of the jobs that have some."""
    rows = await connection.fetch(
        "select job_id, rules from watched_jobs where job_id = any($1) and rules is not null",
        sorted(job_ids),
    )
    return {row["job_id"]: _RULES.validate_json(row["rules"]) for row in rows}


async def watched_of(connection: asyncpg.Connection, job_id: str) -> Watched:
    """Without the rules, which `rules_of` reads; the default where the job is not known."""
    row = await connection.fetchrow(
        "select losses, stalled_seconds from watched_jobs where job_id = $1", job_id
    )
    if row is None:
        return Watched()
    return Watched(tuple(row["losses"]), row["stalled_seconds"])


async def change_project(connection: asyncpg.Connection, job_id: str, project: str | None) -> None:
    """Of a job that is known: one that has ended long ago is not."""
    await connection.execute(
        "update watched_jobs set project = $2 where job_id = $1", job_id, project
    )


async def set_finished(connection: asyncpg.Connection, job_id: str) -> None:
    await connection.execute(
        "update watched_jobs set finished_at = clock_timestamp() where job_id = $1", job_id
    )


async def project_of(connection: asyncpg.Connection, job_id: str) -> str | None:
    project: str | None = await connection.fetchval(
        "select project from watched_jobs where job_id = $1", job_id
    )
    return project
