"""Rows of studies and trials; one statement per function, no rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

_TRIAL = """
    number, hyperparameters, state, value, detail, objectives, is_safe, measured, parent, opened
"""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """`status` is None for a study that an earlier release started; then the counts are its state.

    `stamp` is unique for each saved state.
    """

    study_id: str
    tenant_id: str
    request_id: str
    spec: str
    num_trials: int
    status: str | None = None
    stamp: str = ""
    revision: int = 0
    warm_start: str = "[]"
    num_completed: int = 0
    num_failed: int = 0
    num_stopped: int = 0
    num_refused_in_row: int = 0
    best_number: int | None = None
    best_value: float | None = None
    cancel_reason: str | None = None
    started_at: datetime | None = None
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial as stored; texts other than `detail` are JSON."""

    number: int
    hyperparameters: str
    state: str
    value: float | None
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
class JobEnd:
    """How a job ended that was read before its study."""

    number: int
    result: str | None
    detail: str
    is_refused: bool


async def insert_study(connection: asyncpg.Connection, study: StudyRow) -> datetime | None:
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
        study.spec,
        study.num_trials,
        study.status,
        study.warm_start,
    )
    return started_at


async def lock_study(connection: asyncpg.Connection, study_id: str) -> StudyRow | None:
    """The study, locked until the transaction ends: its events are handled one by one."""
    row = await connection.fetchrow(
        f"{_STUDY} where study_id = $1 for update",
        study_id,
    )
    return None if row is None else StudyRow(**row)


async def get_study(connection: asyncpg.Connection, study_id: str) -> StudyRow | None:
    """The study, to read only."""
    row = await connection.fetchrow(f"{_STUDY} where study_id = $1", study_id)
    return None if row is None else StudyRow(**row)


_STUDY = """
select study_id, tenant_id, request_id, spec, num_trials, status, stamp, revision, warm_start,
       num_completed, num_failed, num_stopped, num_refused_in_row, best_number, best_value,
       cancel_reason, started_at, finished_at is not null as is_finished
from studies
"""


async def save_study(
    connection: asyncpg.Connection, study: StudyRow, num_proposed: int, event: str
) -> None:
    """The state of the search after one event, and the event."""
    await connection.execute(
        """
        with logged as (
            insert into search_events (study_id, revision, event) values ($1, $4, $13))
        update studies
        set status = $2, stamp = $3, revision = $4, num_trials = $5, num_proposed = $6,
            num_completed = $7, num_failed = $8, num_stopped = $9, best_number = $10,
            best_value = $11, num_refused_in_row = $12
        where study_id = $1
        """,
        study.study_id,
        study.status,
        study.stamp,
        study.revision,
        study.num_trials,
        num_proposed,
        study.num_completed,
        study.num_failed,
        study.num_stopped,
        study.best_number,
        study.best_value,
        study.num_refused_in_row,
        event,
    )


async def events_of(connection: asyncpg.Connection, study_id: str) -> list[str]:
    """Everything the search was told, in order; empty once they were removed."""
    rows = await connection.fetch(
        "select event from search_events where study_id = $1 order by revision", study_id
    )
    return [row["event"] for row in rows]


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
    connection: asyncpg.Connection, study_id: str, trials: Sequence[tuple[TrialRow, NewTrial]]
) -> None:
    await connection.executemany(
        """
        insert into trials (study_id, number, job_id, command_event_id, request_id, hyperparameters,
            state, value, detail, objectives, is_safe, measured, parent, opened)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
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
                trial.value,
                trial.detail,
                trial.objectives,
                trial.is_safe,
                trial.measured,
                trial.parent,
                trial.opened,
            )
            for trial, new in trials
        ],
    )


async def save_trials(
    connection: asyncpg.Connection, study_id: str, trials: Sequence[TrialRow]
) -> None:
    """What changes of a trial; a text in `detail` stays where there is none now."""
    await connection.executemany(
        """
        update trials
        set state = $3, value = $4, detail = coalesce($5, detail), objectives = $6, is_safe = $7,
            measured = $8, opened = $9
        where study_id = $1 and number = $2
        """,
        [
            (
                study_id,
                trial.number,
                trial.state,
                trial.value,
                trial.detail,
                trial.objectives,
                trial.is_safe,
                trial.measured,
                trial.opened,
            )
            for trial in trials
        ],
    )


async def job_of(connection: asyncpg.Connection, study_id: str, number: int) -> str:
    job_id: str = await connection.fetchval(
        "select job_id from trials where study_id = $1 and number = $2", study_id, number
    )
    return job_id


async def trial_of_job(connection: asyncpg.Connection, job_id: str) -> tuple[str, int] | None:
    """The study and number of the trial that this job runs."""
    row = await connection.fetchrow("select study_id, number from trials where job_id = $1", job_id)
    return None if row is None else (row["study_id"], row["number"])


async def trial_of_command(
    connection: asyncpg.Connection, job_id: str, command_event_id: str
) -> tuple[str, int] | None:
    """The study and number of the trial whose job this command of ours requested."""
    row = await connection.fetchrow(
        "select study_id, number from trials where job_id = $1 and command_event_id = $2",
        job_id,
        command_event_id,
    )
    return None if row is None else (row["study_id"], row["number"])


async def trial_of_request(
    connection: asyncpg.Connection, study_id: str, request_id: str
) -> int | None:
    """The trial that answered this request of somebody who asked."""
    number: int | None = await connection.fetchval(
        "select number from trials where study_id = $1 and request_id = $2", study_id, request_id
    )
    return number


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
        insert into job_ends (job_id, study_id, number, result, detail, is_refused)
        values ($1, $2, $3, $4, $5, $6)
        on conflict do nothing
        """,
        job_id,
        study_id,
        end.number,
        end.result,
        end.detail,
        end.is_refused,
    )


async def early_ends(connection: asyncpg.Connection, study_id: str) -> list[JobEnd]:
    rows = await connection.fetch(
        """
        select number, result, detail, is_refused from job_ends
        where study_id = $1 order by number
        """,
        study_id,
    )
    return [JobEnd(**row) for row in rows]
