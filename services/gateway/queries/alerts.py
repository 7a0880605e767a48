"""The alerts of a tenant or a job, newest first, a page at a time.

An alert is open while it is raised and its run has not ended. Open ones are found from the jobs
that run now. All others follow an index by time; what no index has (a name, a project, a state) is
looked for in `WINDOW` alerts, and the next page goes on from there.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from services.gateway.queries import silences
from services.gateway.queries.rows import Connection, Row, as_rows

WINDOW = 1000
State = Literal["open", "ended"]


class At(NamedTuple):
    raised_at: datetime
    run_id: str
    alert: str


@dataclass(frozen=True, slots=True)
class Wanted:
    state: State | None = None
    alert: str | None = None
    job_id: str | None = None
    project: str | None = None

    @property
    def is_searched(self) -> bool:
        return (self.state, self.alert, self.project) != (None, None, None)


class Found(NamedTuple):
    """`next`: where the following page begins."""

    rows: list[Row]
    next: At | None


_SHOWN = """
    alerts.*, jobs.project, requests.name as job_name,
    raised_seq > cleared_seq and runs.ended_at is null and jobs.finished_at is null as is_open,
    case when raised_seq > cleared_seq then runs.ended_at else cleared_at end as ended_at
"""
_OTHERS = """
    left join runs on runs.run_id = alerts.run_id
    left join requests on requests.subject_id = alerts.job_id
"""
_ORDER = "raised_at desc, alerts.run_id desc, alerts.alert desc"


async def page(
    connection: Connection, tenant_id: str, wanted: Wanted, after: At | None, limit: int
) -> Found:
    if wanted.state == "open":
        return await _open(connection, tenant_id, wanted, after, limit)
    arguments: list[Any] = [tenant_id]
    in_order = _in_order(wanted, after, arguments, WINDOW if wanted.is_searched else limit + 1)
    of_order = list(arguments)
    rows = await connection.fetch(
        f"""
        select * from (
            select {_SHOWN} from ({in_order}) as alerts
            cross join lateral (
                select * from jobs where job_id = alerts.job_id offset 0) as jobs {_OTHERS}
        ) as shown
        where {" and ".join(_conditions(wanted, arguments))}
        order by raised_at desc, run_id desc, alert desc limit {limit + 1}
        """,
        *arguments,
    )
    found = _cut(as_rows(rows), limit)
    if found.next is not None or not wanted.is_searched:
        return found
    row = await connection.fetchrow(
        f"select raised_at, run_id, alert from ({in_order}) as alerts offset {WINDOW - 1}",
        *of_order,
    )
    return found if row is None else Found(found.rows, At(**dict(row)))


async def of_job(connection: Connection, tenant_id: str, job_id: str, limit: int) -> list[Row]:
    """The newest ones of a job."""
    found = await page(connection, tenant_id, Wanted(job_id=job_id), None, limit)
    return found.rows


async def num_not_silenced(
    connection: Connection, tenant_id: str, now: datetime, limit: int
) -> int:
    """How many open alerts no silence in force is about, counted up to the limit.

    What a silence is about is as `core.silences.silence_of` decides: '' stands for every one.
    """
    found = await connection.fetch(
        f"""
        select from (
            select * from jobs where tenant_id = $1 and state in ('starting', 'running')
        ) as jobs
        cross join lateral (
            select * from alerts where run_id = jobs.run_id and raised_seq > cleared_seq
            offset 0) as alerts
        left join runs on runs.run_id = alerts.run_id
        where runs.ended_at is null and jobs.finished_at is null and not exists (
            select from (values (alerts.alert), ('')) as one (alert),
                (values (jobs.job_id), ('')) as of (job_id),
                (values (jobs.project), ('')) as within (project)
            where (one.alert, of.job_id, within.project) in (
                select coalesce(alert, ''), coalesce(job_id, ''), coalesce(project, '')
                from silences where {silences.IN_FORCE}))
        limit $3
        """,
        tenant_id,
        now,
        limit,
    )
    return len(found)


async def _open(
    connection: Connection, tenant_id: str, wanted: Wanted, after: At | None, limit: int
) -> Found:
    arguments: list[Any] = [tenant_id]
    conditions = _conditions(wanted, arguments)
    if wanted.job_id is not None:
        conditions.append(f"job_id = {_argument(arguments, wanted.job_id)}")
    if after is not None:
        conditions.append(_after(after, arguments))
    rows = await connection.fetch(
        f"""
        select * from (
            select {_SHOWN} from (
                select * from jobs where tenant_id = $1 and state in ('starting', 'running')
            ) as jobs
            cross join lateral (
                select * from alerts where run_id = jobs.run_id and raised_seq > cleared_seq
                offset 0) as alerts {_OTHERS}
        ) as shown
        where {" and ".join(conditions)}
        order by raised_at desc, run_id desc, alert desc limit {limit + 1}
        """,
        *arguments,
    )
    return _cut(as_rows(rows), limit)


def _in_order(wanted: Wanted, after: At | None, arguments: list[Any], limit: int) -> str:
    """The statement for the next `limit` alerts by an index."""
    conditions = ["tenant_id = $1", "raised_seq >= 0"]
    if wanted.job_id is not None:
        conditions.append(f"job_id = {_argument(arguments, wanted.job_id)}")
    if after is not None:
        conditions.append(_after(after, arguments))
    return (
        f"select * from alerts where {' and '.join(conditions)} "
        f"order by raised_at desc, run_id desc, alert desc limit {limit}"
    )


def _conditions(wanted: Wanted, arguments: list[Any]) -> list[str]:
    conditions = ["true"]
    if wanted.state is not None:
        conditions.append("is_open" if wanted.state == "open" else "not is_open")
    if wanted.alert is not None:
        conditions.append(f"alert = {_argument(arguments, wanted.alert)}")
    if wanted.project is not None:
        conditions.append(f"project = {_argument(arguments, wanted.project)}")
    return conditions


def _after(after: At, arguments: list[Any]) -> str:
    place = ", ".join(_argument(arguments, part) for part in after)
    return f"(raised_at, run_id, alert) < ({place})"


def _cut(rows: list[Row], limit: int) -> Found:
    if len(rows) <= limit:
        return Found(rows, None)
    last = rows[limit - 1]
    return Found(rows[:limit], At(last["raised_at"], last["run_id"], last["alert"]))


def _argument(arguments: list[Any], value: Any) -> str:
    arguments.append(value)
    return f"${len(arguments)}"
