"""The statements about checkpoints and what was read of them: one function each, no rules."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Literal

import asyncpg

from services.checkpoints.core.catalogue import Checkpoint
from services.checkpoints.store import Job

State = Literal["good", "rejected", "deleting", "deleted"]


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint in any state. `is_read`: its bytes were verified, not only its sizes."""

    checkpoint_id: str
    job_id: str
    manifest_key: str
    run_id: str
    attempt: int
    fence: int
    step: int
    state: State
    size_bytes: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    is_pinned: bool = False
    may_lead: bool = False
    is_read: bool = False


async def insert(connection: asyncpg.Connection, row: CheckpointRow) -> None:
    await connection.execute(
        """
        insert into checkpoints
            (checkpoint_id, job_id, manifest_key, run_id, attempt, fence, step, state, size_bytes,
             metrics, is_pinned, may_lead, read_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
            case when $13 then clock_timestamp() end)
        """,
        *astuple(row),
    )


async def find(
    connection: asyncpg.Connection, job_id: str, checkpoint_id: str
) -> CheckpointRow | None:
    row = await connection.fetchrow(
        "select * from checkpoints where job_id = $1 and checkpoint_id = $2", job_id, checkpoint_id
    )
    return _checkpoint(row) if row else None


async def rows_in_state(
    connection: asyncpg.Connection, job_id: str, state: State
) -> list[CheckpointRow]:
    rows = await connection.fetch(
        "select * from checkpoints where job_id = $1 and state = $2", job_id, state
    )
    return [_checkpoint(row) for row in rows]


async def states_of(
    connection: asyncpg.Connection, manifest_keys: Collection[str]
) -> dict[str, State]:
    """The states of those of these that are recorded; each is found by the index."""
    rows = await connection.fetch(
        """
        select found.* from unnest($1::text[]) as wanted (manifest_key), lateral (
            select manifest_key, state from checkpoints
            where checkpoints.manifest_key = wanted.manifest_key limit 1) as found
        """,
        list(manifest_keys),
    )
    return {row["manifest_key"]: row["state"] for row in rows}


async def good(connection: asyncpg.Connection, job: Job) -> list[Checkpoint]:
    """Verified, not rejected since, not being deleted."""
    rows = await connection.fetch(
        """
        select checkpoint_id, fence, step, (metrics ->> $2)::double precision as value, is_pinned,
            may_lead, read_at is not null as is_read
        from checkpoints where job_id = $1 and state = 'good'
        """,
        job.job_id,
        job.metric or "",
    )
    return [Checkpoint(**dict(row)) for row in rows]


async def set_state(connection: asyncpg.Connection, checkpoint_id: str, state: State) -> None:
    await connection.execute(
        """
        update checkpoints set state = $2, changed_at = clock_timestamp()
        where checkpoint_id = $1
        """,
        checkpoint_id,
        state,
    )


async def set_pinned(connection: asyncpg.Connection, checkpoint_id: str) -> None:
    await connection.execute(
        "update checkpoints set is_pinned = true where checkpoint_id = $1", checkpoint_id
    )


async def let_lead(connection: asyncpg.Connection, checkpoint_id: str) -> None:
    await connection.execute(
        "update checkpoints set may_lead = true where checkpoint_id = $1", checkpoint_id
    )


async def set_read(connection: asyncpg.Connection, checkpoint_id: str) -> None:
    """Its bytes were read and match."""
    await connection.execute(
        "update checkpoints set read_at = clock_timestamp() where checkpoint_id = $1",
        checkpoint_id,
    )


async def read_longest_ago(connection: asyncpg.Connection, seconds: float) -> CheckpointRow | None:
    """The good checkpoint whose bytes were read longest ago, at least so long, and that does not
    wait to be read already."""
    row = await connection.fetchrow(
        """
        select * from checkpoints
        where state = 'good' and read_at <= statement_timestamp() - $1 * interval '1 second'
            and not exists (
                select from intents where kind = 'read' and intents.job_id = checkpoints.job_id
                    and subject = manifest_key)
        order by read_at limit 1
        """,
        seconds,
    )
    return _checkpoint(row) if row else None


async def read_shards(connection: asyncpg.Connection, manifest_key: str) -> set[str]:
    """The shards of it that were read and match."""
    rows = await connection.fetch(
        "select shard_key from read_shards where manifest_key = $1", manifest_key
    )
    return {row["shard_key"] for row in rows}


async def put_read_shard(connection: asyncpg.Connection, manifest_key: str, shard_key: str) -> None:
    await connection.execute(
        "insert into read_shards values ($1, $2) on conflict do nothing", manifest_key, shard_key
    )


async def forget_read_shards(connection: asyncpg.Connection, manifest_key: str) -> None:
    await connection.execute("delete from read_shards where manifest_key = $1", manifest_key)


async def rejected_long_ago(
    connection: asyncpg.Connection, job_id: str, seconds: float
) -> Sequence[tuple[CheckpointRow, float]]:
    """Rejected ones of a job, and the seconds until they have been rejected for this long."""
    rows = await connection.fetch(
        """
        select *, extract(epoch from changed_at + $2 * interval '1 second' - clock_timestamp())
            ::double precision as remaining
        from checkpoints where job_id = $1 and state = 'rejected' order by changed_at
        """,
        job_id,
        seconds,
    )
    return [(_checkpoint(row), row["remaining"]) for row in rows]


async def prune_deleted(connection: asyncpg.Connection, seconds: float, limit: int) -> int:
    """Delete the rows of checkpoints that were deleted at least this long ago; returns how many."""
    rows = await connection.fetch(
        """
        delete from checkpoints where ctid = any(array(
            select ctid from checkpoints
            where state = 'deleted'
                and changed_at <= statement_timestamp() - $1 * interval '1 second'
            order by changed_at limit $2))
        returning 1
        """,
        seconds,
        limit,
    )
    return len(rows)


def _checkpoint(row: Any) -> CheckpointRow:
    stored = {one.name: row[one.name] for one in fields(CheckpointRow) if one.name != "is_read"}
    return CheckpointRow(**stored, is_read=row["read_at"] is not None)
