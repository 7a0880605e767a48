"""Rows of studies and trials; one statement per function, no rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

_TRIAL = """
    number, hyperparameters, state, detail, objectives, is_safe, measured, parent, opened
"""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """`status` is the search's state beside its trials; `stamp` is unique for each that is saved.

    What was requested is read apart (`Asked`): it may be large, and only a search that is not in
    memory needs it.
    """

    study_id: str
    tenant_id: str
    request_id: str
    num_trials: int
    status: str
    stamp: str = ""
    revision: int = 0
    num_completed: int = 0
    num_failed: int = 0
    num_stopped: int = 0
    cancel_reason: str | None = None
    started_at: datetime | None = None
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What was requested; it never changes. Both texts are JSON."""

    spec: str
    warm_start: str = "[]"


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial as stored; texts other than `detail` are JSON."""

    number: int
    hyperparameters: str
    state: str
    detail: str | None
    objectives: str
    is_safe: bool
    measured: str
    parent: int | None
    opened: str | None


@dataclass(frozen=True, slots=True)
class NewTrial:
    job_id: str
    command_event_id: str
    request_id: str | None


@dataclass(frozen=True, slots=True)
class JobOf:
    """The trial that a job runs; `command_event_id` is our own request for the job."""

    study_id: str
    number: int
    command_event_id: str


@dataclass(frozen=True, slots=True)
class StudyChange:
    """A study after some `events`, the new trials and what changed of those known before.

    `has_more`: its search is to be told to go on.
    """

    study: StudyRow
    state: str
    has_more: bool
    num_paused: int
    num_proposed: int
    new: Sequence[tuple[TrialRow, NewTrial]]
    known: Sequence[TrialRow]
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended that was read before its study."""

    number: int
    result: str | None
    detail: str


async def insert_study(
    connection: asyncpg.Connection, study: StudyRow, asked: Asked
) -> datetime | None:
    """When the study started; None when it is there already."""
    started_at: datetime | None = await connection.fetchval(
        """
        insert into studies (study_id, tenant_id, request_id, spec, num_trials, status, warm_start)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict do nothing
        returning started_at
        """,
        study.study_id,
        study.tenant_id,
        study.request_id,
        asked.spec,
        study.num_trials,
        study.status,
        asked.warm_start,
    )
    return started_at


async def lock_studies(connection: asyncpg.Connection, study_ids: Sequence[str]) -> list[StudyRow]:
    """Those that exist, locked in one order until the transaction ends."""
    rows = await connection.fetch(
        f"{_STUDY} where study_id = any($1) order by study_id for update", study_ids
    )
    return [StudyRow(**row) for row in rows]


async def get_study(connection: asyncpg.Connection, study_id: str) -> StudyRow | None:
    """The study, to read only."""
    row = await connection.fetchrow(f"{_STUDY} where study_id = $1", study_id)
    return None if row is None else StudyRow(**row)


_STUDY = """
select study_id, tenant_id, request_id, num_trials, status, stamp, revision, num_completed,
       num_failed, num_stopped, cancel_reason, started_at, finished_at is not null as is_finished
from studies
"""


async def asked(connection: asyncpg.Connection, study_id: str) -> Asked | None:
    """What was requested; None: there is no such study."""
    row = await connection.fetchrow(
        "select spec, warm_start from studies where study_id = $1", study_id
    )
    return None if row is None else Asked(**row)


async def save(connection: asyncpg.Connection, changes: Sequence[StudyChange]) -> None:
    """Write what changed of these studies, whose rows are locked.

    Many rows by one statement each, sent together: of a join with all of them, Postgres would read
    the whole table.
    """
    new = [(one.study.study_id, *pair) for one in changes for pair in one.new]
    if new:
        await insert_trials(connection, new)
    known = [(one.study.study_id, trial) for one in changes for trial in one.known]
    if known:
        await save_trials(connection, known)
    await save_studies(connection, changes)


async def save_studies(connection: asyncpg.Connection, changes: Sequence[StudyChange]) -> None:
    """The state of the searches, and what they were told, each event with its own revision."""
    await connection.executemany(
        """
        with logged as (
            insert into search_events (study_id, revision, event)
            select $1, $4::bigint - $11::int + place, event
            from unnest($10::text[]) with ordinality as told (event, place))
        update studies
        set status = $2, stamp = $3, revision = $4, num_trials = $5, num_proposed = $6,
            num_completed = $7, num_failed = $8, num_stopped = $9, has_more = $12, state = $13,
            num_paused = $14
        where study_id = $1
        """,
        [
            (
                study.study_id,
                study.status,
                study.stamp,
                study.revision,
                study.num_trials,
                one.num_proposed,
                study.num_completed,
                study.num_failed,
                study.num_stopped,
                one.events,
                len(one.events),
                one.has_more,
                one.state,
                one.num_paused,
            )
            for one in changes
            for study in (one.study,)
        ],
    )


async def events_of(connection: asyncpg.Connection, study_id: str) -> list[str]:
    """Everything the search was told, in order; empty once they were removed."""
    rows = await connection.fetch(
        "select event from search_events where study_id = $1 order by revision", study_id
    )
    return [row["event"] for row in rows]


async def with_more(connection: asyncpg.Connection) -> list[str]:
    """Studies whose searches are to be told to go on."""
    rows = await connection.fetch("select study_id from studies where has_more order by study_id")
    return [row["study_id"] for row in rows]


async def cancel_study(connection: asyncpg.Connection, study_id: str, reason: str) -> None:
    await connection.execute(
        "update studies set cancel_reason = $2 where study_id = $1", study_id, reason
    )


async def finish_study(connection: asyncpg.Connection, study_id: str) -> datetime:
    finished_at: datetime = await connection.fetchval(
        "update studies set finished_at = now() where study_id = $1 returning finished_at",
        study_id,
    )
    return finished_at


async def revive_study(connection: asyncpg.Connection, study_id: str) -> None:
    await connection.execute("update studies set finished_at = null where study_id = $1", study_id)


async def load_trials(connection: asyncpg.Connection, study_id: str) -> list[TrialRow]:
    """All trials, in order of their numbers."""
    rows = await connection.fetch(
        f"select {_TRIAL} from trials where study_id = $1 order by number", study_id
    )
    return [TrialRow(**row) for row in rows]


async def completed_trials(
    connection: asyncpg.Connection, study_id: str, before: int
) -> list[TrialRow]:
    """Those with a value and a lower number than `before`."""
    rows = await connection.fetch(
        f"""
        select {_TRIAL} from trials
        where study_id = $1 and number < $2 and state = 'completed' order by number
        """,
        study_id,
        before,
    )
    return [TrialRow(**row) for row in rows]


async def insert_trials(
    connection: asyncpg.Connection, trials: Sequence[tuple[str, TrialRow, NewTrial]]
) -> None:
    """`trials`: the study of each, the trial and its job."""
    await connection.executemany(
        """
        insert into trials (study_id, number, job_id, command_event_id, request_id, hyperparameters,
            state, detail, objectives, is_safe, measured, parent, opened)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        """,
        [
            (
                study_id,
                trial.number,
                new.job_id,
                new.command_event_id,
                new.request_id,
                trial.hyperparameters,
                trial.state,
                trial.detail,
                trial.objectives,
                trial.is_safe,
                trial.measured,
                trial.parent,
                trial.opened,
            )
            for study_id, trial, new in trials
        ],
    )


async def save_trials(
    connection: asyncpg.Connection, trials: Sequence[tuple[str, TrialRow]]
) -> None:
    """What changes of a trial; a text in `detail` stays where there is none now."""
    await connection.executemany(
        """
        update trials
        set state = $3, detail = coalesce($4, detail), objectives = $5, is_safe = $6, measured = $7,
            opened = $8
        where study_id = $1 and number = $2
        """,
        [
            (
                study_id,
                trial.number,
                trial.state,
                trial.detail,
                trial.objectives,
                trial.is_safe,
                trial.measured,
                trial.opened,
            )
            for study_id, trial in trials
        ],
    )


async def trials_of_jobs(
    connection: asyncpg.Connection, job_ids: Sequence[str]
) -> dict[str, JobOf]:
    """The trials that these jobs run; other jobs are left out.

    Each is found by the index. With `= any`, a plan that was made while the table was short reads
    all of it, and stays until the table is analyzed.
    """
    rows = await connection.fetch(
        """
        select trial.* from unnest($1::text[]) as wanted (job_id), lateral (
            select job_id, study_id, number, command_event_id from trials
            where trials.job_id = wanted.job_id limit 1) as trial
        """,
        job_ids,
    )
    return {
        row["job_id"]: JobOf(row["study_id"], row["number"], row["command_event_id"])
        for row in rows
    }


async def requests_of(connection: asyncpg.Connection, study_id: str) -> set[str]:
    """The requests of those who asked that trials answer."""
    rows = await connection.fetch(
        "select request_id from trials where study_id = $1 and request_id is not null", study_id
    )
    return {row["request_id"] for row in rows}


async def commonest_failure(connection: asyncpg.Connection, study_id: str) -> tuple[str, int]:
    """The reason that most failed trials have, and how many."""
    row = await connection.fetchrow(
        """
        select coalesce(detail, '') as detail, count(*) as num from trials
        where study_id = $1 and state = 'failed'
        group by 1 order by 2 desc, min(number) limit 1
        """,
        study_id,
    )
    return ("", 0) if row is None else (row["detail"], row["num"])


async def insert_job_end(
    connection: asyncpg.Connection, job_id: str, study_id: str, end: JobEnd
) -> None:
    """Keep the end of a job whose study is not known yet."""
    await connection.execute(
        """
        insert into job_ends (job_id, study_id, number, result, detail)
        values ($1, $2, $3, $4, $5)
        on conflict do nothing
        """,
        job_id,
        study_id,
        end.number,
        end.result,
        end.detail,
    )


async def early_ends(connection: asyncpg.Connection, study_id: str) -> list[JobEnd]:
    rows = await connection.fetch(
        """
        select number, result, detail from job_ends where study_id = $1 order by number
        """,
        study_id,
    )
    return [JobEnd(**row) for row in rows]
