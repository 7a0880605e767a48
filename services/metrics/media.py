"""Media: pictures, tables and so on, that programs log by name and step.

In: `media.logged` of pods, on the topic of the samples. Out: a row for each place (name, step,
item) of an attempt; a second record for a place replaces the first if it was logged later, so
repeated records change nothing. Readers get what the highest attempt logged at a step. What a run
logs beyond its quota, and a job beyond its limit, is left out, counted, and told once per run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from drivetrain_schemas.envelope import InvalidEvent, header
from drivetrain_schemas.media import MediaLogged
from services.metrics import alerts
from services.metrics.instruments import MEDIA, MEDIA_LEFT_OUT
from services.metrics.quotas import Quotas
from services.metrics.series.queries import MediaQuery
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Tx

MAX_ITEMS_OF_JOB = 20_000
_TOO_MANY = (
    f"the job has logged {MAX_ITEMS_OF_JOB:,} pictures, tables and so on, which is the limit: "
    "further ones are left out and counted; log fewer, or not in every step"
)
Place = tuple[str, int, int, int]  # name, step, attempt, item
_KEY = ("job_id", "name", "step", "attempt", "item")
_TYPES = {
    **{"job_id": "text", "name": "text", "step": "bigint", "attempt": "bigint", "item": "bigint"},
    **{"number": "bigint", "media": "text", "image_form": "text", "sha256": "text"},
    **{"size_bytes": "bigint", "caption": "text", "file_name": "text"},
    "logged_at": "timestamptz",
}
_COLUMNS = tuple(name for name in _TYPES if name != "job_id")


@dataclass(frozen=True, slots=True)
class MediaRecord:
    """`appended_ms`: when the broker appended the record, in milliseconds since 1970."""

    logged: MediaLogged
    appended_ms: int

    @property
    def run_id(self) -> str:
        return self.logged.run_id


def is_media(record: Record) -> bool:
    """Structured mode names its type in the value, and is for samples alone."""
    return header(record.headers, "ce_type") == MediaLogged.kind.type


async def take_media(
    tokens: RunTokens, tx: Tx, records: Sequence[Record], *, quotas: Quotas | None = None
) -> Sequence[InvalidRecord]:
    """Store what is new, while the job has not too much and its media are not deleted."""
    rejected: list[InvalidRecord] = []
    read: list[MediaRecord] = []
    for record in records:
        try:
            event = tokens.read(record)
        except InvalidEvent as invalid:
            rejected.append(InvalidRecord(record, str(invalid.reason), invalid.detail))
            continue
        if event is not None and isinstance(event.payload, MediaLogged):
            read.append(MediaRecord(event.payload, record.timestamp_ms))
    beyond: list[MediaRecord] = []
    if quotas is not None:
        divided = await quotas.divide(tx, read)
        read, beyond = divided.admitted, divided.beyond
    by_job: dict[str, list[MediaLogged]] = {}
    for one in read:
        by_job.setdefault(one.logged.job_id, []).append(one.logged)
    too_many: list[MediaLogged] = []
    for job_id in sorted(by_job):  # all transactions lock heads in this order
        too_many += await _store(tx, job_id, by_job[job_id])
    await alerts.raise_left_out(tx, ((one, _TOO_MANY) for one in too_many), about="media")
    if quotas is not None:
        fix = "log fewer, or not in every step"
        reason = quotas.rates.exceeded("pictures, tables and so on", fix)
        told = ((one.logged, reason) for one in beyond)
        await alerts.raise_left_out(tx, told, about="media quota")
    tx.after_commit(lambda: MEDIA_LEFT_OUT.inc(len(beyond)))
    return rejected


async def _store(tx: Tx, job_id: str, logged: Sequence[MediaLogged]) -> list[MediaLogged]:
    """Returns what is beyond the limit of the job; of one whose media are deleted, nothing."""
    connection = tx.connection
    head = await connection.fetchrow(
        """insert into media_heads (job_id) values ($1)
        on conflict (job_id) do update set job_id = excluded.job_id
        returning num_items, deleting_at is not null as is_deleted""",
        job_id,
    )
    assert head is not None
    newest = _newest(logged)
    known = await _known(connection, job_id, list(newest))
    room = 0 if head["is_deleted"] else MAX_ITEMS_OF_JOB - head["num_items"]
    added = [place for place in newest if place not in known][: max(0, room)]
    stored = known.union(added)
    await _put(connection, [one for place, one in newest.items() if place in stored])
    await connection.execute(
        """update media_heads set num_items = num_items + $2, written_at = clock_timestamp()
        where job_id = $1""",
        job_id,
        len(added),
    )
    tx.after_commit(lambda: MEDIA.inc(len(added)))
    left_out = [one for one in logged if _place(one) not in stored]
    tx.after_commit(lambda: MEDIA_LEFT_OUT.inc(len(left_out)))
    return [] if head["is_deleted"] else left_out


def _place(one: MediaLogged) -> Place:
    return (one.name, one.step, one.attempt, one.item)


def _newest(logged: Sequence[MediaLogged]) -> dict[Place, MediaLogged]:
    """What was logged last for each place, in the order in which places came."""
    newest: dict[Place, MediaLogged] = {}
    for one in logged:
        known = newest.setdefault(_place(one), one)
        if one.number > known.number:
            newest[_place(one)] = one
    return newest


async def _known(
    connection: asyncpg.Connection, job_id: str, places: Sequence[Place]
) -> set[Place]:
    """Those of these places that the job has. Its head is locked."""
    rows = await connection.fetch(
        """select name, step, attempt, item
        from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
            as given (name, step, attempt, item)
        join media using (name, step, attempt, item) where job_id = $1""",
        job_id,
        *map(list, zip(*places, strict=True)),
    )
    return {tuple(row) for row in rows}


async def _put(connection: asyncpg.Connection, items: Sequence[MediaLogged]) -> None:
    """Each place occurs once; what was logged before what is there changes nothing."""
    given = ", ".join(f"${at}::{kind}[]" for at, kind in enumerate(_TYPES.values(), 1))
    changes = ", ".join(f"{name} = excluded.{name}" for name in _TYPES if name not in _KEY)
    await connection.execute(
        f"""insert into media ({", ".join(_TYPES)}) select * from unnest({given})
        on conflict (job_id, name, step, attempt, item) do update set {changes}
        where media.number < excluded.number""",
        *([getattr(one, name) for one in items] for name in _TYPES),
    )


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
