"""The statements about the times of runs: points of (step, time), and the clock they come from."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from services.metrics.core.clock import Clock, Point

MAX_POINTS_READ = 50_000
MAX_POINTS = 8_000  # of an answer, in which each has some 20 bytes


def to_clock(row: Sequence[float] | None) -> Clock | None:
    if row is None:
        return None
    began_at, kept_step, kept_at, newest_step, newest_at = row
    return Clock(began_at, Point(int(kept_step), kept_at), Point(int(newest_step), newest_at))


async def save(
    connection: asyncpg.Connection, run_id: str, clock: Clock, points: Sequence[Point]
) -> None:
    """The run is locked."""
    kept, newest = clock.kept, clock.newest
    await connection.execute(
        "update runs set clock = $2 where run_id = $1",
        run_id,
        [clock.began_at, kept.step, kept.at, newest.step, newest.at],
    )
    if points:
        await connection.execute(
            """
            insert into run_times (job_id, attempt, step, at)
            select job_id, attempt, given.step, given.at
            from runs, unnest($2::bigint[], $3::double precision[]) as given (step, at)
            where run_id = $1
            on conflict do nothing
            """,
            run_id,
            [point.step for point in points],
            [point.at for point in points],
        )


async def of_job(connection: asyncpg.Connection, job_id: str) -> dict[str, Any]:
    """The points of each attempt, ascending; of very many, every n-th."""
    rows = await connection.fetch(
        """
        select attempt, step, max(at) as at from (
            select attempt, step, at from run_times where job_id = $1
            union all
            select attempt, clock[4]::bigint, clock[5] from runs
            where job_id = $1 and clock is not null
        ) as points
        group by attempt, step order by attempt desc, step desc limit $2
        """,
        job_id,
        MAX_POINTS_READ,
    )
    every = -(-len(rows) // MAX_POINTS)
    attempts: dict[int, tuple[list[int], list[float]]] = {}
    for attempt, step, at in reversed(rows[:: max(1, every)]):
        steps, times = attempts.setdefault(attempt, ([], []))
        steps.append(step)
        times.append(round(at, 1))
    return {
        "job_id": job_id,
        "attempts": [
            {"attempt": attempt, "steps": steps, "times": times}
            for attempt, (steps, times) in attempts.items()
        ],
    }
