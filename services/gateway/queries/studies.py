"""Studies and their trials."""

from collections.abc import Sequence
from typing import Any

from services.gateway.queries.rows import Connection, Position, Row, as_row, as_rows, with_spec

# The newest studies of a name; first, so that the others are not read.
_NAMED = """
    select subject_id from requests where sampler is not null and name = ${}
    order by asked_at desc limit 1000
"""


async def page(
    connection: Connection,
    tenant_id: str,
    after: Position | None,
    limit: int,
    *,
    state: str | None = None,
    name: str | None = None,
) -> list[Row]:
    """The tenant's studies, newest first, after a position; without their specs."""
    # Only the conditions that are given, so that each plan uses the index made for it.
    arguments: list[Any] = [tenant_id, limit]
    conditions = ""
    if state is not None:
        arguments.append(state)
        conditions += f" and state = ${len(arguments)}"
    if name is not None:
        arguments.append(name)
        conditions += f" and study_id = any(array({_NAMED.format(len(arguments))}))"
    if after is not None:
        arguments += after
        conditions += f" and (listed_at, study_id) < (${len(arguments) - 1}, ${len(arguments)})"
    rows = await connection.fetch(
        f"""
        select * from shown_studies where tenant_id = $1{conditions}
        order by listed_at desc, study_id desc limit $2
        """,
        *arguments,
    )
    return as_rows(rows)


async def find(connection: Connection, tenant_id: str, study_id: str) -> Row | None:
    """The study with its spec; `accepted_spec` as for jobs."""
    return await with_spec(connection, "shown_studies", "study_id", tenant_id, study_id)


# A trial with its job: at most as many rows as the trials that are named.
_WITH_JOBS = """
    select trials.*, jobs.state as job_state, jobs.started_at as job_started_at,
        case when progress.attempt >= coalesce(jobs.attempt, 0) then progress.step end as step,
        coalesce(requests.max_steps, progress.max_steps) as max_steps,
        coalesce(job_spend.charged_micro_usd, 0) as charged_micro_usd
    from ({}) as trials
    left join jobs on jobs.job_id = trials.job_id
    left join requests on requests.subject_id = trials.job_id
    left join job_progress as progress on progress.job_id = trials.job_id
    left join job_spend on job_spend.job_id = trials.job_id
    order by {}
"""


async def trials(
    connection: Connection, study_id: str, limit: int, *, is_maximized: bool
) -> list[Row]:
    """The best first, then those without a rank: first those that go on, then the newest."""
    ranked = await ranked_trials(connection, study_id, limit, is_maximized=is_maximized)
    if len(ranked) == limit:
        return ranked
    others = """
        (select trials.*, true as is_live from trials
            where study_id = $1 and state in ('proposed', 'stopping', 'paused')
            order by number limit $2)
        union all
        (select trials.*, false from trials
            where study_id = $1 and ranked_value is null
                and state not in ('proposed', 'stopping', 'paused')
            order by number desc limit $2)
        order by is_live desc, number limit $2
    """
    statement = _WITH_JOBS.format(others, "is_live desc, number")
    return ranked + as_rows(await connection.fetch(statement, study_id, limit - len(ranked)))


async def ranked_trials(
    connection: Connection,
    study_id: str,
    limit: int,
    *,
    is_maximized: bool,
    after: tuple[float, int] | None = None,
) -> list[Row]:
    """Trials with a rank, the best first; those `after` a value and number."""
    down, beyond = ("desc", "<") if is_maximized else ("asc", ">")
    arguments: list[Any] = [study_id, limit]
    condition = ""
    if after is not None:
        arguments += after
        condition = (
            f"and ranked_value {beyond}= $3 and (ranked_value {beyond} $3 or number > $4::bigint)"
        )
    chosen = f"""
        select * from trials where study_id = $1 and ranked_value is not null {condition}
        order by ranked_value {down}, number limit $2
    """
    statement = _WITH_JOBS.format(chosen, f"ranked_value {down}, number")
    return as_rows(await connection.fetch(statement, *arguments))


async def trials_by_number(
    connection: Connection, study_id: str, after: int, limit: int
) -> list[Row]:
    """Trials in the order of their numbers, each with the rungs at which it was judged."""
    chosen = """
        select * from trials where study_id = $1 and number > $2 order by number limit $3
    """
    rows = as_rows(
        await connection.fetch(_WITH_JOBS.format(chosen, "number"), study_id, after, limit)
    )
    rungs = await rungs_of(connection, study_id, [row["number"] for row in rows])
    return [{**row, "judged": rungs.get(row["number"], [])} for row in rows]


async def find_trial(connection: Connection, study_id: str, number: int) -> Row | None:
    """The trial with the rungs at which it was judged."""
    return await _one_trial(connection, study_id, "number = $2", number)


async def trial_asked_for(connection: Connection, study_id: str, request_id: str) -> Row | None:
    """The trial that this request of somebody outside was answered with."""
    return await _one_trial(connection, study_id, "request_id = $2", request_id)


async def _one_trial(
    connection: Connection, study_id: str, condition: str, argument: int | str
) -> Row | None:
    chosen = f"select * from trials where study_id = $1 and {condition} limit 1"
    statement = _WITH_JOBS.format(chosen, "number")
    row = as_row(await connection.fetchrow(statement, study_id, argument))
    if row is None:
        return None
    rungs = await rungs_of(connection, study_id, [row["number"]])
    return {**row, "judged": rungs.get(row["number"], [])}


async def rungs_of(
    connection: Connection, study_id: str, numbers: Sequence[int]
) -> dict[int, list[Row]]:
    """The rungs of these trials, ascending."""
    found: dict[int, list[Row]] = {}
    rows = await connection.fetch(
        """
        select * from trial_rungs where study_id = $1 and number = any($2::bigint[])
        order by number, step
        """,
        study_id,
        list(numbers),
    )
    for row in as_rows(rows):
        found.setdefault(row["number"], []).append(row)
    return found
