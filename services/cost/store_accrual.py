"""The statements about allocations that accrue: until when, and why; no rules.

An allocation without a release is over when its run has ended, its job has ended, or its job was
granted slots again: the scheduler does none of these before the release, so its record is late or
parked. While no node of a run answers, the slots are held but not paid for: the owner pays until
the pods were last seen. A run whose pods the cluster does not make or place costs its owner nothing
while that is so. A run that is only suspected is seen by the scheduler, and goes on.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg

# Of `allocations left join run_facts using (run_id)`, without a release. Null: until now.
HELD_UNTIL = "least(ended_at, over_at)"
PAID_UNTIL = "least(ended_at, over_at, unreachable_at, waits_from)"

_UNRELEASED = f"""
select count(*) from allocations left join run_facts using (run_id)
where released_at is null and {HELD_UNTIL} < statement_timestamp() - $1::interval
"""
_END_EARLIER = """
update allocations set over_at = least(over_at, following.granted_at)
from (
    select allocation_id, min(later.granted_at) as granted_at
    from unnest($1::text[], $2::timestamptz[]) as later (job_id, granted_at)
        join allocations as held using (job_id)
    where released_at is null and held.granted_at < later.granted_at
    group by allocation_id) as following
where allocations.allocation_id = following.allocation_id
"""
_END_OF_JOBS = """
update allocations set over_at = least(over_at, ended.ended_at)
from unnest($1::text[], $2::timestamptz[]) as ended (job_id, ended_at)
where allocations.job_id = ended.job_id and released_at is null
"""
# All nodes of the run are among those that do not answer; since the first time it was so.
_NOTE_UNREACHABLE = """
insert into run_facts (run_id, unreachable_at)
    select $1, $3 from allocations
    where run_id = $1 and $2::text[] @> array(select jsonb_object_keys(slot_numbers))
on conflict (run_id) do update set
    unreachable_at = coalesce(run_facts.unreachable_at, excluded.unreachable_at)
"""
_NOTE_WAITING = """
insert into run_facts (run_id, waits_from)
    select run_id, granted_at from allocations where run_id = $1
on conflict (run_id) do update set waits_from = excluded.waits_from
"""


async def num_unreleased(connection: asyncpg.Connection) -> int:
    """Allocations that are over for longer than records are late."""
    number: int = await connection.fetchval(_UNRELEASED, timedelta(minutes=10))
    return number


async def end_earlier(
    connection: asyncpg.Connection, granted: Sequence[tuple[str, datetime]]
) -> None:
    """What these jobs were granted before these times is over."""
    if granted:
        await connection.execute(_END_EARLIER, *map(list, zip(*granted, strict=True)))


async def end_of_jobs(connection: asyncpg.Connection, ended_at: Mapping[str, datetime]) -> None:
    """The jobs with these ids hold nothing since these times."""
    await connection.execute(_END_OF_JOBS, list(ended_at), list(ended_at.values()))


async def note_unreachable(
    connection: asyncpg.Connection, run_id: str, node_ids: Sequence[str], at: datetime
) -> None:
    """These nodes of the run do not answer; the others do."""
    status = await connection.execute(_NOTE_UNREACHABLE, run_id, list(node_ids), at)
    if status == "INSERT 0 0":
        await connection.execute(
            "update run_facts set unreachable_at = null where run_id = $1", run_id
        )


async def note_waiting(connection: asyncpg.Connection, run_id: str, does_wait: bool) -> None:
    """Its pods are not made, or not placed; or they are now."""
    if does_wait:
        await connection.execute(_NOTE_WAITING, run_id)
    else:
        await connection.execute("update run_facts set waits_from = null where run_id = $1", run_id)
