"""The tables of what lineage tells: one function per statement, no rules."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import asyncpg

from drivetrain_schemas.openlineage import LineageCheckpoint, LineageJob


@dataclass(frozen=True, slots=True)
class RunRow:
    """`is_told`: its START is written. `data`: what it uses, as JSON."""

    run_id: str
    began_at: datetime
    is_told: bool
    has_ended: bool
    data: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The oldest delivery of an endpoint; `num_tries` with the one that is made now."""

    id: int
    event_id: str
    body: str
    num_tries: int
    age_seconds: float


async def put_job(connection: asyncpg.Connection, job: LineageJob) -> None:
    await connection.execute(
        "insert into lineage_jobs (job_id, facts) values ($1, $2) on conflict do nothing",
        job.job_id,
        json.dumps(asdict(job)),
    )


async def job(connection: asyncpg.Connection, job_id: str) -> LineageJob | None:
    facts = await connection.fetchval("select facts from lineage_jobs where job_id = $1", job_id)
    return None if facts is None else LineageJob(**json.loads(facts))


async def finish_job(connection: asyncpg.Connection, job_id: str) -> None:
    await connection.execute(
        "update lineage_jobs set finished_at = clock_timestamp() where job_id = $1", job_id
    )


async def begin_run(connection: asyncpg.Connection, run_id: str, began_at: datetime) -> None:
    """A later time of the same run replaces an earlier one."""
    await connection.execute(
        """insert into lineage_runs (run_id, began_at) values ($1, $2)
        on conflict (run_id) do update set began_at = excluded.began_at""",
        run_id,
        began_at,
    )


async def put_data(
    connection: asyncpg.Connection, run_id: str, said_at: datetime, data: str
) -> None:
    """Also before the run is known to begin."""
    await connection.execute(
        """insert into lineage_runs (run_id, began_at, data) values ($1, $2, $3)
        on conflict (run_id) do update set data = excluded.data""",
        run_id,
        said_at,
        data,
    )


async def lock_run(connection: asyncpg.Connection, run_id: str) -> RunRow | None:
    row = await connection.fetchrow(
        """select run_id, began_at, is_told, ended_at is not null as has_ended, data
        from lineage_runs where run_id = $1 for update""",
        run_id,
    )
    return None if row is None else RunRow(**dict(row))


async def set_told(connection: asyncpg.Connection, run_id: str) -> None:
    await connection.execute("update lineage_runs set is_told = true where run_id = $1", run_id)


async def end_run(connection: asyncpg.Connection, run_id: str) -> None:
    await connection.execute(
        "update lineage_runs set ended_at = clock_timestamp() where run_id = $1", run_id
    )


async def is_due(connection: asyncpg.Connection, run_id: str, seconds: float) -> bool:
    """True once in so many seconds."""
    row = await connection.fetchval(
        """update lineage_runs set told_at = clock_timestamp() where run_id = $1
            and told_at <= statement_timestamp() - make_interval(secs => $2) returning 1""",
        run_id,
        seconds,
    )
    return row is not None


async def put_checkpoint(
    connection: asyncpg.Connection,
    run_id: str,
    one: LineageCheckpoint,
    *,
    is_input: bool,
    at_most: int,
) -> None:
    """The newest `at_most` of a run are kept."""
    await connection.execute(
        """insert into lineage_checkpoints
            (run_id, checkpoint_id, is_input, step, size_bytes, num_shards)
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing""",
        run_id,
        one.checkpoint_id,
        is_input,
        one.step,
        one.size_bytes,
        one.num_shards,
    )
    await connection.execute(
        """delete from lineage_checkpoints where run_id = $1 and is_input = $2
            and checkpoint_id in (select checkpoint_id from lineage_checkpoints
                where run_id = $1 and is_input = $2 order by step desc offset $3)""",
        run_id,
        is_input,
        at_most,
    )


async def drop_checkpoint(connection: asyncpg.Connection, run_id: str, checkpoint_id: str) -> None:
    await connection.execute(
        """delete from lineage_checkpoints
        where run_id = $1 and checkpoint_id = $2 and not is_input""",
        run_id,
        checkpoint_id,
    )


async def checkpoints(
    connection: asyncpg.Connection, run_id: str, *, is_input: bool
) -> Sequence[LineageCheckpoint]:
    rows = await connection.fetch(
        """select checkpoint_id, step, size_bytes, num_shards from lineage_checkpoints
        where run_id = $1 and is_input = $2 order by step, checkpoint_id""",
        run_id,
        is_input,
    )
    return [LineageCheckpoint(**dict(row)) for row in rows]


async def append(connection: asyncpg.Connection, queue: str, event_id: str, body: str) -> None:
    await connection.execute(
        """insert into deliveries (webhook, event_id, body) values ($1, $2, $3)
        on conflict (webhook, event_id) do nothing""",
        queue,
        event_id,
        body,
    )


async def begin(connection: asyncpg.Connection, queue: str, retry_seconds: float) -> Waiting | None:
    """The oldest one, counted as tried, if it is due; nothing overtakes it.

    It is not due again before `retry_seconds`, so that a process that dies meanwhile costs one try,
    and a second process does not send it as well.
    """
    row = await connection.fetchrow(
        """update deliveries set num_tries = num_tries + 1,
            not_before = clock_timestamp() + make_interval(secs => $2)
        where id = (select id from deliveries where webhook = $1 order by id limit 1 for update)
            and not_before <= statement_timestamp()
        returning id, event_id, body, num_tries,
            extract(epoch from clock_timestamp() - created_at)::float8 as age_seconds""",
        queue,
        retry_seconds,
    )
    return None if row is None else Waiting(**dict(row))


async def trim(connection: asyncpg.Connection, queue: str, at_most: int) -> int:
    """Delete the oldest ones beyond so many. Returns how many."""
    status = await connection.execute(
        """delete from deliveries where webhook = $1 and id <= (
            select id from deliveries where webhook = $1 order by id desc offset $2 limit 1)""",
        queue,
        at_most,
    )
    return int(status.rpartition(" ")[2])


async def oldest_seconds(connection: asyncpg.Connection, queue: str) -> float:
    """The age of the oldest delivery that waits, 0 without one."""
    found = await connection.fetchval(
        """select extract(epoch from clock_timestamp() - created_at)::float8
        from deliveries where webhook = $1 order by id limit 1""",
        queue,
    )
    return float(found or 0.0)
