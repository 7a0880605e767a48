"""Rows of studies, trials and job ends; one statement per function, no rules."""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from services.hpo.core.ranking import Ranked
from services.hpo.core.search import Progress


@dataclass(frozen=True, slots=True)
class StudyRow:
    study_id: str
    tenant_id: str
    request_id: str
    spec: str
    num_trials: int
    progress: Progress
    cancel_reason: str | None = None
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class TrialRow:
    number: int
    job_id: str
    hyperparameters: str


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A running trial whose job has ended; `result` is the job's result as JSON."""

    number: int
    job_id: str
    hyperparameters: str
    result: str | None
    detail: str
    is_refused: bool


async def insert_study(connection: asyncpg.Connection, study: StudyRow) -> datetime | None:
    """When the study started; None when it is there already."""
    started_at: datetime | None = await connection.fetchval(
        """
        insert into studies (study_id, tenant_id, request_id, spec, num_trials)
        values ($1, $2, $3, $4, $5)
        on conflict do nothing
        returning started_at
        """,
        study.study_id,
        study.tenant_id,
        study.request_id,
        study.spec,
        study.num_trials,
    )
    return started_at


async def lock_study(connection: asyncpg.Connection, study_id: str) -> StudyRow | None:
    """The study, locked until the transaction ends: its trials' ends are handled one by one."""
    row = await connection.fetchrow(
        "select * from studies where study_id = $1 for update", study_id
    )
    if row is None:
        return None
    best = row["best_number"]
    return StudyRow(
        study_id=row["study_id"],
        tenant_id=row["tenant_id"],
        request_id=row["request_id"],
        spec=row["spec"],
        num_trials=row["num_trials"],
        progress=Progress(
            num_proposed=row["num_proposed"],
            num_completed=row["num_completed"],
            num_failed=row["num_failed"],
            num_refused_in_row=row["num_refused_in_row"],
            best=None if best is None else Ranked(best, row["best_value"]),
            is_cancelled=row["cancel_reason"] is not None,
        ),
        cancel_reason=row["cancel_reason"],
        is_finished=row["finished_at"] is not None,
    )


async def save_progress(connection: asyncpg.Connection, study_id: str, progress: Progress) -> None:
    await connection.execute(
        """
        update studies
        set num_proposed = $2, num_completed = $3, num_failed = $4,
            best_number = $5, best_value = $6, num_refused_in_row = $7
        where study_id = $1
        """,
        study_id,
        progress.num_proposed,
        progress.num_completed,
        progress.num_failed,
        progress.best.number if progress.best else None,
        progress.best.value if progress.best else None,
        progress.num_refused_in_row,
    )


async def cancel_study(connection: asyncpg.Connection, study_id: str, reason: str) -> None:
    await connection.execute(
        "update studies set cancel_reason = $2 where study_id = $1", study_id, reason
    )


async def running_jobs(connection: asyncpg.Connection, study_id: str) -> list[str]:
    """The jobs of trials that have not ended, in order of their numbers."""
    rows = await connection.fetch(
        """
        select job_id from trials left join job_ends using (job_id)
        where trials.study_id = $1 and state = 'running' and job_ends.job_id is null
        order by trials.number
        """,
        study_id,
    )
    return [row["job_id"] for row in rows]


async def finish_study(connection: asyncpg.Connection, study_id: str) -> datetime:
    finished_at: datetime = await connection.fetchval(
        "update studies set finished_at = now() where study_id = $1 returning finished_at",
        study_id,
    )
    return finished_at


async def insert_trial(
    connection: asyncpg.Connection, study_id: str, trial: TrialRow, command_event_id: str
) -> None:
    await connection.execute(
        """
        insert into trials (study_id, number, job_id, command_event_id, hyperparameters)
        values ($1, $2, $3, $4, $5)
        """,
        study_id,
        trial.number,
        trial.job_id,
        command_event_id,
        trial.hyperparameters,
    )


async def settle_trial(
    connection: asyncpg.Connection, study_id: str, number: int, value: float | None, detail: str
) -> None:
    await connection.execute(
        """
        update trials
        set state = case when $3::double precision is null then 'failed' else 'completed' end,
            value = $3, detail = nullif($4, '')
        where study_id = $1 and number = $2
        """,
        study_id,
        number,
        value,
        detail,
    )


async def get_trial(connection: asyncpg.Connection, study_id: str, number: int) -> TrialRow:
    row = await connection.fetchrow(
        """
        select number, job_id, hyperparameters from trials where study_id = $1 and number = $2
        """,
        study_id,
        number,
    )
    assert row is not None, f"{study_id} has no trial {number}"
    return TrialRow(**row)


async def find_trial_of_command(
    connection: asyncpg.Connection, job_id: str, command_event_id: str
) -> tuple[str, int] | None:
    """The study and number of the trial whose job this command of ours requested."""
    row = await connection.fetchrow(
        "select study_id, number from trials where job_id = $1 and command_event_id = $2",
        job_id,
        command_event_id,
    )
    return None if row is None else (row["study_id"], row["number"])


async def insert_job_end(
    connection: asyncpg.Connection,
    job_id: str,
    trial: tuple[str, int],
    result: str | None,
    detail: str,
    *,
    is_refused: bool,
) -> bool:
    """False when the end of this job is known already."""
    inserted = await connection.fetchval(
        """
        insert into job_ends (job_id, study_id, number, result, detail, is_refused)
        values ($1, $2, $3, $4, $5, $6)
        on conflict do nothing
        returning true
        """,
        job_id,
        *trial,
        result,
        detail,
        is_refused,
    )
    return bool(inserted)


async def ended_trials(connection: asyncpg.Connection, study_id: str) -> list[EndedTrial]:
    """Running trials whose jobs have ended, in order of their numbers."""
    rows = await connection.fetch(
        """
        select number, job_id, hyperparameters, result, job_ends.detail, is_refused
        from trials join job_ends using (job_id, study_id, number)
        where study_id = $1 and state = 'running'
        order by number
        """,
        study_id,
    )
    return [EndedTrial(**row) for row in rows]
