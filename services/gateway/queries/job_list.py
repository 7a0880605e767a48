"""The list of jobs: filtered, sorted, a page at a time.

State, study, project and order follow an index. What no index has (a part of the name, a tag, a
metric) is looked for in at most `WINDOW` jobs of that order; where that was not enough, the page
says up to where it has looked, and the next one goes on from there.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from services.gateway.queries.rows import Connection, Row, as_rows

WINDOW = 5000
Sort = Literal["newest", "oldest", "highest", "lowest"]
_BEST = "(result #>> '{best,value}')::double precision"
_DIRECTION = {"newest": "desc", "oldest": "asc", "highest": "desc", "lowest": "asc"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs, in which order. `text` is a part of the name or the beginning of the id.

    `metric` is the job's own metric or one of its result. The order by value needs it and has
    only jobs with a best value of it. `without_trials`: those of no study.
    """

    state: str | None = None
    study_id: str | None = None
    project: str | None = None
    tag: str | None = None
    metric: str | None = None
    text: str | None = None
    sort: Sort = "newest"
    without_trials: bool = False

    @property
    def is_by_value(self) -> bool:
        return self.sort in ("highest", "lowest")

    @property
    def is_searched(self) -> bool:
        return any((self.tag, self.metric and not self.is_by_value, self.text))


class At(NamedTuple):
    """A position in the list: the time or the value that it is sorted by, and the id."""

    key: datetime | float
    job_id: str


class Found(NamedTuple):
    """`next` is None at the end; `num_searched`: only so many jobs were looked at."""

    rows: list[Row]
    next: At | None
    num_searched: int | None = None


async def page(
    connection: Connection, tenant_id: str, wanted: Wanted, after: At | None, limit: int
) -> Found:
    """At most `limit` jobs after a position; without their specs."""
    arguments: list[Any] = [tenant_id]
    in_order = _in_order(wanted, after, arguments, WINDOW if wanted.is_searched else limit + 1)
    rows = await connection.fetch(
        f"""
        with in_order as materialized ({in_order}), chosen as materialized (
            select job_id, key from in_order
            {_matching(wanted, arguments)}
            order by {_order(wanted)} limit {limit + 1}
        )
        select shown_jobs.*, chosen.key,
            coalesce(
                case when result #>> '{{best,name}}' = wanted.metric then {_BEST} end,
                (result #>> array['metrics', wanted.metric])::double precision,
                saved.value
            ) as value,
            wanted.metric as value_name
        from chosen join shown_jobs using (job_id)
        cross join lateral (
            select coalesce({_argument(arguments, wanted.metric)}::text, shown_jobs.metric)
                as metric
        ) as wanted
        left join lateral (
            select (metrics ->> wanted.metric)::double precision as value from checkpoints
            where result is null and checkpoints.job_id = chosen.job_id and best_seq is not null
                and jsonb_typeof(metrics -> wanted.metric) = 'number'
            order by best_seq desc limit 1
        ) as saved on true
        order by {_order(wanted)}
        """,
        *arguments,
    )
    found = as_rows(rows)
    if len(found) > limit:
        return Found(found[:limit], At(found[limit - 1]["key"], found[limit - 1]["job_id"]))
    if not wanted.is_searched:
        return Found(found, None)
    return Found(found, *await _looked_at(connection, tenant_id, wanted, after))


async def _looked_at(
    connection: Connection, tenant_id: str, wanted: Wanted, after: At | None
) -> tuple[At | None, int | None]:
    """The end of the window, where there are more jobs behind it."""
    arguments: list[Any] = [tenant_id]
    in_order = _in_order(wanted, after, arguments, WINDOW)
    row = await connection.fetchrow(
        f"select key, job_id from ({in_order}) as in_order offset {WINDOW - 1}", *arguments
    )
    return (None, None) if row is None else (At(row["key"], row["job_id"]), WINDOW)


def _in_order(wanted: Wanted, after: At | None, arguments: list[Any], limit: int) -> str:
    """The statement for the next `limit` jobs by an index."""
    key = _BEST if wanted.is_by_value else "listed_at"
    conditions = ["tenant_id = $1"]
    if wanted.is_by_value:
        metric = _argument(arguments, wanted.metric)
        conditions += [
            "result #> '{best,value}' is not null",
            f"result #>> '{{best,name}}' = {metric}",
        ]
    if wanted.state is not None:
        conditions.append(f"state = {_argument(arguments, wanted.state)}")
    if wanted.study_id is not None:
        conditions.append(f"group_id = {_argument(arguments, wanted.study_id)}")
    if wanted.project is not None:
        conditions.append(f"project = {_argument(arguments, wanted.project)}")
    if wanted.without_trials:
        conditions.append("group_id is null")
    if after is not None:
        sign = "<" if _DIRECTION[wanted.sort] == "desc" else ">"
        place = ", ".join(_argument(arguments, part) for part in after)
        conditions.append(f"({key}, job_id) {sign} ({place})")
    direction = _DIRECTION[wanted.sort]
    return (
        f"select job_id, {key} as key, result, annotated_tags from jobs "
        f"where {' and '.join(conditions)} "
        f"order by {key} {direction}, job_id {direction} limit {limit}"
    )


def _matching(wanted: Wanted, arguments: list[Any]) -> str:
    """The join and the conditions that no index has."""
    if not wanted.is_searched:
        return ""
    conditions = []
    if wanted.tag is not None:
        tag = _argument(arguments, wanted.tag)
        conditions.append(f"coalesce(annotated_tags, requests.tags) ? {tag}")
    if wanted.metric is not None:
        name = _argument(arguments, wanted.metric)
        conditions.append(f"(requests.metric = {name} or result -> 'metrics' ? {name})")
    if wanted.text is not None:
        text = _argument(arguments, wanted.text.lower())
        conditions.append(
            f"(position({text}::text in lower(requests.name)) > 0 or starts_with(job_id, {text}) "
            f"or starts_with(job_id, 'job_' || {text}))"
        )
    # A look-up for each job in order (offset 0), never a join with all requests.
    request = "select * from requests where subject_id = in_order.job_id offset 0"
    return f"cross join lateral ({request}) as requests where {' and '.join(conditions)}"


def _order(wanted: Wanted) -> str:
    direction = _DIRECTION[wanted.sort]
    return f"key {direction}, job_id {direction}"


def _argument(arguments: list[Any], value: Any) -> str:
    arguments.append(value)
    return f"${len(arguments)}"
