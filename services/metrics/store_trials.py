"""The table of trials that are judged at rungs: one function per statement, no rules."""

from collections.abc import Collection, Mapping

import asyncpg

from drivetrain_schemas import system_series
from services.metrics.core.rungs import Sample, Trial

# Chunks around a rung that are read for its value; several only where attempts overlap.
_CHUNKS_BEFORE = 5
_CHUNKS_AFTER = 50


async def insert(connection: asyncpg.Connection, trial: Trial) -> None:
    await connection.execute(
        """insert into trials (job_id, tenant_id, study_id, number, metric, rungs)
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing""",
        trial.job_id,
        trial.tenant_id,
        trial.study_id,
        trial.number,
        trial.metric,
        list(trial.rungs),
    )


async def lock(connection: asyncpg.Connection, job_ids: Collection[str]) -> Mapping[str, Trial]:
    """Those of these jobs that have rungs left, by job, until the end of the transaction."""
    rows = await connection.fetch(
        """select * from trials where job_id = any($1) and num_measured < cardinality(rungs)
        order by job_id for update""",
        sorted(job_ids),
    )
    return {
        row["job_id"]: Trial(
            job_id=row["job_id"],
            tenant_id=row["tenant_id"],
            study_id=row["study_id"],
            number=row["number"],
            metric=row["metric"],
            rungs=tuple(row["rungs"]),
            num_measured=row["num_measured"],
            is_ended=row["is_ended"],
        )
        for row in rows
    }


async def add_measured(connection: asyncpg.Connection, job_id: str, number: int) -> None:
    await connection.execute(
        "update trials set num_measured = num_measured + $2 where job_id = $1", job_id, number
    )


async def set_ended(connection: asyncpg.Connection, job_id: str, is_ended: bool) -> None:
    await connection.execute("update trials set is_ended = $2 where job_id = $1", job_id, is_ended)


async def set_finished(connection: asyncpg.Connection, job_id: str) -> None:
    """The job has ended; its row is kept for samples that are still on their way."""
    await connection.execute(
        "update trials set finished_at = clock_timestamp() where job_id = $1", job_id
    )


async def last_step(connection: asyncpg.Connection, job_id: str) -> int:
    """The highest step at which rank 0 has logged anything; -1 where it has not."""
    step: int = await connection.fetchval(
        """
        select coalesce(max(last_step), -1) from series
        where job_id = $1 and rank = 0 and name !~ $2
        """,
        job_id,
        system_series.PATTERN,
    )
    return step


async def samples_around(
    connection: asyncpg.Connection, job_id: str, metric: str, rung: int
) -> list[Sample]:
    """Samples of rank 0 among which the value at the rung is."""
    rows = await connection.fetch(
        """select attempt, steps, values from (
            (select * from chunks where job_id = $1 and rank = 0 and series = $2
                and max_step <= $3 order by max_step desc limit $4)
            union all
            (select * from chunks where job_id = $1 and rank = 0 and series = $2
                and max_step > $3 order by max_step limit $5)) as around
        order by id""",
        job_id,
        metric,
        rung,
        _CHUNKS_BEFORE,
        _CHUNKS_AFTER,
    )
    return [
        Sample(step, row["attempt"], value)
        for row in rows
        for step, value in zip(row["steps"], row["values"], strict=True)
    ]
