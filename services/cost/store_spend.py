"""The statements about spend by subject and day, and about the jobs that subjects consist of.

A subject is '' (the whole tenant), the id of a study or job, or `project/` and a project's name. A
job belongs to a study from its first event on, and to one project at a time: where either is
learned after charges, what the job has spent is moved. Charges are added to `spend` by the
database, in the statement that inserts them (sql/0001_baseline.sql).
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import date, datetime
from typing import Any, Literal

import asyncpg

from drivetrain_schemas.budgets import BudgetSpec
from services.cost.core.budgets import Part
from services.cost.store import IN_FORCE

TENANT = ""
_LOCK_JOBS = """
insert into jobs (job_id) select unnest($1::text[]) as job_id order by 1 on conflict do nothing
"""
_MOVE = """
insert into spend
    select tenant_id, move.subject, day, sum(sign * charged_micro_usd), min(first_at)
    from unnest($1::text[], $2::text[], $3::integer[]) as move (job_id, subject, sign)
        join spend on spend.tenant_id = $4 and spend.subject = move.job_id
    group by 1, 2, 3 order by 1, 2, 3
on conflict (tenant_id, subject, day) do update set
    charged_micro_usd = spend.charged_micro_usd + excluded.charged_micro_usd,
    first_at = least(spend.first_at, excluded.first_at)
"""
_PUT_JOB = """
update jobs set study_id = coalesce($2, study_id), project = coalesce($3, project),
    name = coalesce($4, name), command = coalesce($5, command),
    succeeded_at = coalesce($6, succeeded_at), of_tenant = $7
where job_id = $1
"""
_TIMES = """
select sum((case when reverses_charge_id is null then 1 else -1 end)
    * num_slots * extract(epoch from ends_at - starts_at) * 1000000)::bigint as slot_time
from (
    select job_id, succeeded_at from jobs
    where of_tenant = $1 and {column} = $2 and succeeded_at is not null
    order by succeeded_at desc limit $3) as latest
    join charges using (job_id)
group by job_id
"""
_CHARGED = """
select asked.*, coalesce(charged, 0)::bigint as charged, first_at
from unnest($1::text[], $2::text[], $3::date[]) as asked (tenant_id, subject, since),
    lateral (
        select sum(charged_micro_usd) as charged,
            min(first_at) filter (where charged_micro_usd > 0) as first_at from spend
        where spend.tenant_id = asked.tenant_id and spend.subject = asked.subject
            and day >= coalesce(since, '-infinity')
            and day <= case when since is null then '-infinity'::date else 'infinity' end) as found
"""
# In parts at one price each. What is open may have been charged since it was read.
_PARTS = f"""
select starts_at, ends_at, num_slots * price_micro_usd_per_slot_hour
from charges left join jobs using (job_id)
where tenant_id = $1 and $2 = any(array['', job_id, study_id, 'project/' || project])
    and ends_at > $3 and allocation_id <> all($4::text[]) and {IN_FORCE}
"""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts of a job in one event; None: the event does not have it."""

    job_id: str
    study_id: str | None = None
    project: str | None = None
    name: str | None = None
    command: str | None = None  # its digest
    succeeded_at: datetime | None = None

    def after(self, earlier: "JobFacts | None") -> "JobFacts":
        """These facts, completed by those of an earlier event."""
        known = {name: value for name, value in asdict(self).items() if value}
        return self if earlier is None else replace(earlier, **known)


@dataclass(frozen=True, slots=True)
class Asked:
    """The spend of a subject since a day (UTC), or of all time."""

    tenant_id: str
    subject: str
    since: date | None


def subject_of(spec: BudgetSpec) -> str:
    """What the budget is of."""
    return spec.study_id or spec.job_id or subject_of_project(spec.project) or TENANT


async def put_jobs(
    connection: asyncpg.Connection, tenant_id: str, jobs: Sequence[JobFacts]
) -> None:
    """Keep what is known of these jobs, each given once, and count their spend for its subjects."""
    ids = sorted({job.job_id for job in jobs})
    await connection.execute(_LOCK_JOBS, ids)
    rows = await connection.fetch(
        "select * from jobs where job_id = any($1) order by job_id for update", ids
    )
    before = {row["job_id"]: row for row in rows}
    moves: list[tuple[str, str, int]] = []
    for job in jobs:
        moves += _moves(before[job.job_id], job)
    await connection.executemany(_PUT_JOB, [(*astuple(job), tenant_id) for job in jobs])
    if moves:
        await connection.execute(_MOVE, *map(list, zip(*moves, strict=True)), tenant_id)


def _moves(before: Any, job: JobFacts) -> list[tuple[str, str, int]]:
    """(job, subject, 1 or -1): to which subjects its spend is added, and from which it is taken."""
    found = []
    pairs = (
        (before["study_id"], job.study_id),
        (subject_of_project(before["project"]), subject_of_project(job.project)),
    )
    for old, new in pairs:
        if new is not None and new != old:
            found.append((job.job_id, new, 1))
            if old is not None:
                found.append((job.job_id, old, -1))
    return found


def subject_of_project(name: str | None) -> str | None:
    return None if name is None else f"project/{name}"


def digest_of(command: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(command).encode("utf-8", "replace")).hexdigest()[:32]


async def times_of(
    connection: asyncpg.Connection,
    tenant_id: str,
    column: Literal["name", "command", "project"],
    value: str | None,
    limit: int,
) -> list[int]:
    """Slots x microseconds of the latest jobs that succeeded, where they were charged."""
    rows = await connection.fetch(_TIMES.format(column=column), tenant_id, value, limit)
    return [row["slot_time"] for row in rows]


async def charged(
    connection: asyncpg.Connection, asked: Collection[Asked]
) -> dict[Asked, tuple[int, datetime | None]]:
    """What was charged, and when the time of it began, by one statement."""
    if not asked:
        return {}
    columns = zip(*((each.tenant_id, each.subject, each.since) for each in asked), strict=True)
    rows = await connection.fetch(_CHARGED, *map(list, columns))
    return {Asked(*row[:3]): (row["charged"], row["first_at"]) for row in rows}


async def parts_since(
    connection: asyncpg.Connection, asked: Asked, since: datetime, but: Iterable[str]
) -> list[Part]:
    """What was charged for time that ended after this, but for these allocations."""
    rows = await connection.fetch(_PARTS, asked.tenant_id, asked.subject, since, list(but))
    return [Part(*row) for row in rows]
