"""The tables of live windows: one function per statement, and their rows as windows of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import asyncpg
import msgspec

from drivetrain_schemas.specs import is_loss
from drivetrain_schemas.system_series import STEP_WORK
from services.metrics.core.health import Health, RunWindow
from services.metrics.core.windows import Progress, Statistics, Window, is_utilisation
from services.metrics.windows.records import SourceState


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """A window of one rank or of one pod."""

    attempt: int
    rank: int | None
    pod_id: str | None
    window: Window


async def put(connection: asyncpg.Connection, windows: Sequence[tuple[SourceState, Window]]) -> int:
    """Store windows of sources; an older version changes nothing. Returns how many changed."""
    rows = [
        (
            state.run_id,
            state.key.decode(),
            window.starts_at,
            state.job_id,
            state.attempt,
            state.rank,
            state.pod_id,
            state.version,
            msgspec.json.encode(window.series).decode(),
            *_columns(window.progress),
        )
        for state, window in windows
    ]
    status = await connection.execute(
        """insert into windows (run_id, source_id, starts_at, job_id, attempt, rank, pod_id,
            version, series, first_at, first_step, last_at, last_step)
        select * from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[],
            $6::integer[], $7::text[], $8::bigint[], $9::text[]::jsonb[], $10::float8[],
            $11::bigint[], $12::float8[], $13::bigint[])
        on conflict (run_id, source_id, starts_at) do update set
            version = excluded.version, series = excluded.series, first_at = excluded.first_at,
            first_step = excluded.first_step, last_at = excluded.last_at,
            last_step = excluded.last_step
        where windows.version < excluded.version and (windows.series, windows.first_at,
            windows.first_step, windows.last_at, windows.last_step) is distinct from
            (excluded.series, excluded.first_at, excluded.first_step, excluded.last_at,
            excluded.last_step)""",
        *zip(*rows, strict=True),
    )
    return int(status.split()[-1])


async def lock_health(
    connection: asyncpg.Connection, run_id: str, first_window: int
) -> tuple[int, Health]:
    """The window that is to be judged next, and the health before it, until the transaction's
    end. A new run begins with `first_window`."""
    row = await connection.fetchrow(
        """insert into run_health (run_id, next_window, health) values ($1, $2, '{}'::jsonb)
        on conflict (run_id) do update set run_id = excluded.run_id
        returning next_window, health""",
        run_id,
        first_window,
    )
    assert row is not None, "an upsert returns its row"
    return row["next_window"], msgspec.convert(row["health"], Health)


async def set_health(
    connection: asyncpg.Connection, run_id: str, next_window: int, health: Health
) -> None:
    await connection.execute(
        "update run_health set next_window = $2, health = $3 where run_id = $1",
        run_id,
        next_window,
        msgspec.to_builtins(health),
    )


async def of_run(
    connection: asyncpg.Connection, job_id: str, run_id: str, from_window: int, to_window: int
) -> list[StoredWindow]:
    """Windows from the first to before the second time; those of a job are in order of time."""
    rows = await connection.fetch(
        """select * from windows
        where job_id = $1 and run_id = $2 and starts_at >= $3 and starts_at < $4
        order by starts_at, source_id""",
        job_id,
        run_id,
        from_window,
        to_window,
    )
    return [_stored(row) for row in rows]


async def of_job(
    connection: asyncpg.Connection, job_id: str, from_window: int, num_windows: int, limit: int
) -> list[StoredWindow]:
    """The newest windows of a job from this time on, by time: of at most so many times."""
    rows = await connection.fetch(
        """select * from (
            select * from windows where job_id = $1 and starts_at >= (
                select min(starts_at) from (
                    select distinct starts_at from windows where job_id = $1 and starts_at >= $2
                    order by starts_at desc limit $3) as starts)
            order by starts_at desc, source_id limit $4
        ) newest order by starts_at, source_id""",
        job_id,
        from_window,
        num_windows,
        limit,
    )
    return [_stored(row) for row in rows]


def run_window(windows: Iterable[StoredWindow]) -> RunWindow:
    """One window of all sources of a run."""
    rates, losses, utilisation, work = {}, {}, [], {}
    for stored in windows:
        progress = stored.window.progress
        rate = None if progress is None else progress.steps_per_second
        if stored.pod_id is not None and rate is not None:
            rates[stored.pod_id] = rate
        for name, statistics in stored.window.series.items():
            if is_utilisation(name) and statistics.num_finite:
                utilisation.append(statistics.mean)
            elif name == STEP_WORK and stored.rank is not None and statistics.num_finite:
                work[stored.rank] = statistics.mean
            elif is_loss(name):
                losses[name] = statistics
    return RunWindow(rates, losses, tuple(utilisation), work)


def _columns(progress: Progress | None) -> tuple[float | int | None, ...]:
    if progress is None:
        return (None, None, None, None)
    return (progress.first_at, progress.first_step, progress.last_at, progress.last_step)


def _stored(row: asyncpg.Record) -> StoredWindow:
    progress = None
    if row["first_at"] is not None:
        progress = Progress(row["first_at"], row["first_step"], row["last_at"], row["last_step"])
    series = msgspec.convert(row["series"], dict[str, Statistics])
    return StoredWindow(
        row["attempt"], row["rank"], row["pod_id"], Window(row["starts_at"], series, progress)
    )
