"""Media: pictures, tables and so on, that programs log by name and step.

In: `media.logged` of pods, on the topic of the samples. Out: a row for each place (name, step,
item) of an attempt; a second record for a place replaces the first if it was logged later, so
repeated records change nothing. Readers get what the highest attempt logged at a step.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from drivetrain_schemas.envelope import InvalidEvent, header
from drivetrain_schemas.media import MediaLogged
from services.metrics.instruments import MEDIA, MEDIA_LEFT_OUT
from services.metrics.series.queries import MediaQuery
from services.runtime import logs
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Tx

log = logs.get()

MAX_ITEMS_OF_JOB = 20_000
_COLUMNS = (
    *("name", "step", "attempt", "item", "number", "media", "image_form", "sha256"),
    *("size_bytes", "caption", "file_name", "logged_at"),
)
_KEY = ("name", "step", "attempt", "item")
_REST = tuple(name for name in _COLUMNS if name not in _KEY)


def is_media(record: Record) -> bool:
    """Structured mode names its type in the value, and is for samples alone."""
    return header(record.headers, "ce_type") == MediaLogged.kind.type


async def take_media(
    tokens: RunTokens, tx: Tx, records: Sequence[Record]
) -> Sequence[InvalidRecord]:
    """Store what is new, while the job has not too much and its media are not deleted."""
    rejected: list[InvalidRecord] = []
    by_job: dict[str, list[MediaLogged]] = {}
    for record in records:
        try:
            event = tokens.read(record)
        except InvalidEvent as invalid:
            rejected.append(InvalidRecord(record, str(invalid.reason), invalid.detail))
            continue
        if event is not None and isinstance(event.payload, MediaLogged):
            by_job.setdefault(event.payload.job_id, []).append(event.payload)
    for job_id in sorted(by_job):  # all transactions lock heads in this order
        await _store(tx, job_id, by_job[job_id])
    return rejected


async def _store(tx: Tx, job_id: str, logged: Sequence[MediaLogged]) -> None:
    connection = tx.connection
    head = await connection.fetchrow(
        """insert into media_heads (job_id) values ($1)
        on conflict (job_id) do update set job_id = excluded.job_id
        returning num_items, deleting_at is not null as is_deleted""",
        job_id,
    )
    assert head is not None
    num_added = num_left_out = 0
    for one in logged:
        is_full = head["is_deleted"] or head["num_items"] + num_added >= MAX_ITEMS_OF_JOB
        is_new = await _put(connection, one, may_add=not is_full)
        num_added += is_new is True
        num_left_out += is_new is None
    await connection.execute(
        """update media_heads set num_items = num_items + $2, written_at = clock_timestamp()
        where job_id = $1""",
        job_id,
        num_added,
    )
    tx.after_commit(lambda: MEDIA.inc(num_added))
    if num_left_out:
        tx.after_commit(lambda: MEDIA_LEFT_OUT.inc(num_left_out))
        log.warning("media left out", job_id=job_id, num_left_out=num_left_out)


async def _put(connection: asyncpg.Connection, one: MediaLogged, *, may_add: bool) -> bool | None:
    """True where a place was added, False where it was there, None where it may not be added."""
    key = (one.job_id, one.name, one.step, one.attempt, one.item)
    values = [getattr(one, name) for name in _REST]
    changed = await connection.execute(
        f"""update media set {", ".join(f"{name} = ${at}" for at, name in enumerate(_REST, 6))}
        where (job_id, name, step, attempt, item) = ($1, $2, $3, $4, $5) and number < $6""",
        *key,
        *values,
    )
    if changed != "UPDATE 0":
        return False
    is_known = await connection.fetchval(
        "select 1 from media where (job_id, name, step, attempt, item) = ($1, $2, $3, $4, $5)", *key
    )
    if is_known:
        return False
    if not may_add:
        return None
    await connection.execute(
        f"""insert into media (job_id, name, step, attempt, item, {", ".join(_REST)})
        values ({", ".join(f"${at}" for at in range(1, 6 + len(_REST)))})""",
        *key,
        *values,
    )
    return True


async def of_job(connection: asyncpg.Connection, query: MediaQuery) -> dict[str, Any]:
    """The names with the number of their steps; with a name, the items of its last steps."""
    if query.name is None:
        rows = await connection.fetch(
            """select name, (array_agg(media order by step desc, attempt desc))[1] as media,
                count(distinct step) as num_steps, min(step) as first_step, max(step) as last_step
            from media where job_id = $1 group by name order by name collate "C" limit $2""",
            query.job_id,
            query.limit,
        )
        return {"names": [dict(row) for row in rows]}
    rows = await connection.fetch(
        f"""select {", ".join(_COLUMNS)} from (
            select *, max(attempt) over (partition by step) as newest,
                dense_rank() over (order by step desc) as place
            from media where job_id = $1 and name = $2 and ($3::bigint is null or step <= $3)
        ) as placed
        where attempt = newest and place <= $4 order by step, item""",
        query.job_id,
        query.name,
        query.to_step,
        query.limit,
    )
    return {"items": [dict(row) for row in rows]}
