"""The statements of the metrics service that store what arrives, and those about runs; no rules.

Series are read by `series_store`, lines stored and read by `log_store`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import asyncpg

from drivetrain_schemas.runs import RunState
from services.metrics.core.alerts import Pace
from services.metrics.core.clock import Clock
from services.metrics.messages import BatchKey
from services.metrics.series.copying import ChunkRow, binary
from services.metrics.series.times_store import to_clock

Stream = Literal["samples", "logs"]
# Of one kind; names of series are the program's, and an alert is kept for ever.
MAX_ALERTS_OF_RUN = 100
MAX_WARNINGS_OF_RUN = 20


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """What batches add to one series of one run."""

    run_id: str
    rank: int
    name: str
    job_id: str
    attempt: int
    num_samples: int
    first_step: int
    last_step: int
    last_value: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as this service knows it."""

    run_id: str
    job_id: str
    tenant_id: str
    attempt: int
    state: str | None
    progress: Pace | None
    clock: Clock | None

    @property
    def has_ended(self) -> bool:
        return self.state is not None and RunState(self.state).is_final


async def insert_batches(
    connection: asyncpg.Connection, stream: Stream, keys: Iterable[BatchKey]
) -> set[BatchKey]:
    """Store the batches' keys; returns those that are new."""
    ordered = sorted(set(keys))
    rows = await connection.fetch(
        """
        insert into batches (run_id, rank, session, batch, stream)
        select run_id, rank, session, batch, $5
        from unnest($1::text[], $2::integer[], $3::text[], $4::bigint[])
            as given (run_id, rank, session, batch)
        on conflict do nothing
        returning run_id, rank, session, batch
        """,
        [key.run_id for key in ordered],
        [key.rank for key in ordered],
        [key.session for key in ordered],
        [key.batch for key in ordered],
        stream,
    )
    return {BatchKey(*row) for row in rows}


async def known_names(
    connection: asyncpg.Connection, wanted: Sequence[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Those of the given jobs and names that are stored."""
    rows = await connection.fetch(
        """
        select job_id, name from unnest($1::text[], $2::text[]) as wanted (job_id, name)
        join series_names using (job_id, name)
        """,
        [job_id for job_id, _ in wanted],
        [name for _, name in wanted],
    )
    return {(row[0], row[1]) for row in rows}


async def lock_names(connection: asyncpg.Connection, job_id: str) -> int:
    """How many names the job has; locks its head, so that no other transaction adds some."""
    found = await connection.fetchval(
        """
        insert into sample_heads as head (job_id) values ($1)
        on conflict (job_id) do update set num_names = head.num_names
        returning num_names
        """,
        job_id,
    )
    return int(found)


async def add_names(connection: asyncpg.Connection, job_id: str, names: Sequence[str]) -> None:
    """The job's head is locked."""
    await connection.execute(
        """
        with added as (
            insert into series_names (job_id, name) select $1, unnest($2::text[])
            on conflict do nothing returning 1)
        update sample_heads set num_names = num_names + (select count(*) from added)
        where job_id = $1
        """,
        job_id,
        names,
    )


async def add_left_out(connection: asyncpg.Connection, job_id: str, num_samples: int) -> None:
    await connection.execute(
        """
        insert into sample_heads as head (job_id, num_samples_left_out) values ($1, $2)
        on conflict (job_id) do update
            set num_samples_left_out = head.num_samples_left_out + excluded.num_samples_left_out
        """,
        job_id,
        num_samples,
    )


async def insert_chunks(connection: asyncpg.Connection, chunks: Sequence[ChunkRow]) -> None:
    await connection.copy_to_table(
        "chunks", source=BytesIO(binary(chunks)), columns=ChunkRow._fields, format="binary"
    )


async def add_to_series(connection: asyncpg.Connection, rows: Sequence[SeriesRow]) -> None:
    """Each (run, rank, name) occurs once in `rows`."""
    ordered = sorted(rows, key=lambda row: (row.run_id, row.rank, row.name))
    await connection.execute(
        """
        insert into series as old
            (run_id, rank, name, job_id, attempt, num_samples, first_step, last_step, last_value)
        select * from unnest(
            $1::text[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::double precision[]
        )
        on conflict (run_id, rank, name) do update set
            num_samples = old.num_samples + excluded.num_samples,
            first_step = least(old.first_step, excluded.first_step),
            last_value = case
                when excluded.last_step >= old.last_step then excluded.last_value
                else old.last_value
            end,
            last_step = greatest(old.last_step, excluded.last_step)
        """,
        [row.run_id for row in ordered],
        [row.rank for row in ordered],
        [row.name for row in ordered],
        [row.job_id for row in ordered],
        [row.attempt for row in ordered],
        [row.num_samples for row in ordered],
        [row.first_step for row in ordered],
        [row.last_step for row in ordered],
        [row.last_value for row in ordered],
    )


async def lock_run(
    connection: asyncpg.Connection, run_id: str, job_id: str, tenant_id: str, attempt: int
) -> RunRow:
    """The run's row, made where it is missing."""
    await connection.execute(
        """
        insert into runs (run_id, job_id, tenant_id, attempt) values ($1, $2, $3, $4)
        on conflict do nothing
        """,
        run_id,
        job_id,
        tenant_id,
        attempt,
    )
    row = await connection.fetchrow("select * from runs where run_id = $1 for update", run_id)
    assert row is not None
    progress = None
    if row["heard_at"] is not None:
        progress = Pace(
            heard_at=row["heard_at"],
            step=row["step"],
            moved_at=row["moved_at"],
            still_seconds=row["still_seconds"],
            step_seconds=tuple(row["step_seconds"]),
            named_at=row["named_at"],
        )
    return RunRow(
        run_id,
        row["job_id"],
        row["tenant_id"],
        row["attempt"],
        row["state"],
        progress,
        to_clock(row["clock"]),
    )


async def set_state(
    connection: asyncpg.Connection, run_id: str, state: str, tenant_id: str
) -> None:
    await connection.execute(
        "update runs set state = $2, tenant_id = $3 where run_id = $1", run_id, state, tenant_id
    )


async def set_progress(connection: asyncpg.Connection, run_id: str, progress: Pace) -> None:
    await connection.execute(
        """
        update runs set heard_at = $2, step = $3, moved_at = $4, still_seconds = $5,
            step_seconds = $6, named_at = $7
        where run_id = $1
        """,
        run_id,
        progress.heard_at,
        progress.step,
        progress.moved_at,
        progress.still_seconds,
        list(progress.step_seconds),
        progress.named_at,
    )


async def now(connection: asyncpg.Connection) -> float:
    """The service's clock, in seconds: that of Postgres, which all replicas share."""
    return float(await connection.fetchval("select extract(epoch from clock_timestamp())"))


async def raise_alert(
    connection: asyncpg.Connection, run_id: str, alert: str, series: str = "", *, again: bool
) -> bool:
    """True where the alert was not raised before, or (`again`) was cleared since.

    False also where the run has too many of its kind.
    """
    row = await connection.fetchval(
        """
        insert into alerts as old (run_id, alert, series)
            select $1, $2, $3
            where (select count(*) from alerts where run_id = $1 and alert = $2) < $5
        on conflict (run_id, alert, series) do update
            set raised_at = excluded.raised_at, cleared_at = null
            where $4 and old.cleared_at is not null
        returning 1
        """,
        run_id,
        alert,
        series,
        again,
        MAX_ALERTS_OF_RUN,
    )
    return row is not None


async def raised(
    connection: asyncpg.Connection, run_ids: Collection[str], alert: str
) -> set[tuple[str, str]]:
    """What of this kind was raised in these runs: the run, and what it is about."""
    rows = await connection.fetch(
        "select run_id, series from alerts where run_id = any($1) and alert = $2",
        sorted(run_ids),
        alert,
    )
    return {(row["run_id"], row["series"]) for row in rows}


async def tenant_of(connection: asyncpg.Connection, run_id: str) -> str | None:
    """As the scheduler's events name it; None where they have not come yet."""
    tenant_id: str | None = await connection.fetchval(
        "select tenant_id from runs where run_id = $1 and state is not null", run_id
    )
    return tenant_id


async def add_warning(connection: asyncpg.Connection, run_id: str, detail: str) -> int | None:
    """Its number in the run, from 1; None where it is known, or the run has too many.

    The run is locked.
    """
    number: int | None = await connection.fetchval(
        """
        insert into warnings (run_id, number, detail)
            select $1, count(*) + 1, $2 from warnings where run_id = $1
            having count(*) < $3 and not coalesce(bool_or(detail = $2), false)
        returning number
        """,
        run_id,
        detail,
        MAX_WARNINGS_OF_RUN,
    )
    return number


async def active_alerts(connection: asyncpg.Connection, run_id: str) -> list[str]:
    rows = await connection.fetch(
        """select distinct alert from alerts where run_id = $1 and cleared_at is null
        order by alert""",
        run_id,
    )
    return [row["alert"] for row in rows]


async def clear_alert(connection: asyncpg.Connection, run_id: str, alert: str) -> bool:
    """True where the alert was active, about the run or a series of it."""
    row = await connection.fetchval(
        """
        update alerts set cleared_at = clock_timestamp()
        where run_id = $1 and alert = $2 and cleared_at is null
        returning 1
        """,
        run_id,
        alert,
    )
    return row is not None
