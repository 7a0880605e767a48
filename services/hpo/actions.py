"""Carries out the search's actions in the handler's transaction: rows, events, job commands."""

from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import (
    StudyCancelled,
    StudyCompleted,
    StudyFailed,
    StudySpec,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)
from services.hpo import instruments, messages, store
from services.hpo.core import search
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()


async def take(tx: Tx, study: store.StudyRow, cause: Event[Payload]) -> bool:
    """Decide once and carry it out; False when there was nothing to do. The study is locked."""
    if study.is_finished:
        return False
    spec = messages.read_spec(study.spec)
    ended = [
        messages.to_ended(trial, spec)
        for trial in await store.ended_trials(tx.connection, study.study_id)
    ]
    decision = search.decide(messages.to_search(spec), study.progress, ended)
    for action in decision.actions:
        match action:
            case search.ProposeTrial():
                await _propose(tx, study, spec, action, cause)
            case search.CompleteTrial():
                await _complete(tx, study, action, cause)
            case search.FailTrial():
                await _fail(tx, study, action, cause)
            case search.FinishStudy():
                await _finish(tx, study, spec, action, cause)
            case search.FailStudy():
                await _give_up(tx, study, action, cause)
            case search.CancelStudy():
                await _cancel(tx, study, spec, action, cause)
    if decision.actions:
        await store.save_progress(tx.connection, study.study_id, decision.progress)
    return bool(decision.actions)


async def _propose(
    tx: Tx,
    study: store.StudyRow,
    spec: StudySpec,
    action: search.ProposeTrial,
    cause: Event[Payload],
) -> None:
    point = action.hyperparameters
    job = messages.trial_job(spec, action.number, point)
    command = messages.trial_command(study.tenant_id, study.study_id, action.number, job)
    assert command.job_id is not None
    proposed = TrialProposed(
        study_id=study.study_id,
        number=action.number,
        job_id=command.job_id,
        hyperparameters=point,
    )
    await tx.emit(proposed, tenant_id=study.tenant_id, cause=cause)
    command_event_id = await tx.emit(command, tenant_id=study.tenant_id, cause=cause)
    trial = store.TrialRow(action.number, command.job_id, messages.dump_point(point))
    await store.insert_trial(tx.connection, study.study_id, trial, command_event_id)
    tx.after_commit(instruments.TRIALS_PROPOSED.inc)
    log.info("trial proposed", study_id=study.study_id, number=action.number, job_id=trial.job_id)


async def _complete(
    tx: Tx, study: store.StudyRow, action: search.CompleteTrial, cause: Event[Payload]
) -> None:
    trial = await store.get_trial(tx.connection, study.study_id, action.number)
    await store.settle_trial(tx.connection, study.study_id, action.number, action.value, "")
    completed = TrialCompleted(
        study_id=study.study_id,
        number=action.number,
        job_id=trial.job_id,
        hyperparameters=messages.load_point(trial.hyperparameters),
        value=action.value,
        is_best=action.is_best,
    )
    await tx.emit(completed, tenant_id=study.tenant_id, cause=cause)
    _note_end(tx, study, action.number, "completed")


async def _fail(
    tx: Tx, study: store.StudyRow, action: search.FailTrial, cause: Event[Payload]
) -> None:
    trial = await store.get_trial(tx.connection, study.study_id, action.number)
    await store.settle_trial(tx.connection, study.study_id, action.number, None, action.detail)
    failed = TrialFailed(
        study_id=study.study_id,
        number=action.number,
        job_id=trial.job_id,
        hyperparameters=messages.load_point(trial.hyperparameters),
        detail=action.detail,
    )
    await tx.emit(failed, tenant_id=study.tenant_id, cause=cause)
    _note_end(tx, study, action.number, "failed")


async def _finish(
    tx: Tx,
    study: store.StudyRow,
    spec: StudySpec,
    action: search.FinishStudy,
    cause: Event[Payload],
) -> None:
    completed = StudyCompleted.model_validate(await _end(tx, study, spec, action))
    await tx.emit(completed, tenant_id=study.tenant_id, cause=cause)
    tx.after_commit(instruments.STUDIES_COMPLETED.inc)
    log.info("study completed", study_id=study.study_id, best_number=completed.best_number)


async def _cancel(
    tx: Tx,
    study: store.StudyRow,
    spec: StudySpec,
    action: search.CancelStudy,
    cause: Event[Payload],
) -> None:
    end = await _end(tx, study, spec, action)
    cancelled = StudyCancelled.model_validate({**end, "reason": study.cancel_reason})
    await tx.emit(cancelled, tenant_id=study.tenant_id, cause=cause)
    tx.after_commit(instruments.STUDIES_CANCELLED.inc)
    log.info("study cancelled", study_id=study.study_id, best_number=cancelled.best_number)


async def _end(
    tx: Tx, study: store.StudyRow, spec: StudySpec, action: search.FinishStudy | search.CancelStudy
) -> dict[str, Any]:
    """What both ends of a study say; the study is marked as ended."""
    best = action.best
    trial = await store.get_trial(tx.connection, study.study_id, best.number) if best else None
    return {
        "study_id": study.study_id,
        "num_completed": action.num_completed,
        "num_failed": action.num_failed,
        "best_number": best.number if best else None,
        "best_job_id": trial.job_id if trial else None,
        "best_value": best.value if best else None,
        "best_hyperparameters": messages.load_point(trial.hyperparameters) if trial else None,
        "metric": messages.metric_of(spec),
        "finished_at": await store.finish_study(tx.connection, study.study_id),
    }


async def _give_up(
    tx: Tx, study: store.StudyRow, action: search.FailStudy, cause: Event[Payload]
) -> None:
    number = search.MAX_REFUSED_IN_ROW
    failed = StudyFailed(
        study_id=study.study_id,
        reason="trials_refused",
        detail=f"{number} or more trials in a row could not run: {action.detail}",
        num_completed=action.num_completed,
        num_failed=action.num_failed,
        finished_at=await store.finish_study(tx.connection, study.study_id),
    )
    await tx.emit(failed, tenant_id=study.tenant_id, cause=cause)
    tx.after_commit(instruments.STUDIES_FAILED.inc)
    log.warning("study failed", study_id=study.study_id, detail=failed.detail)


def _note_end(tx: Tx, study: store.StudyRow, number: int, state: str) -> None:
    tx.after_commit(instruments.TRIALS_ENDED.labels(state).inc)
    log.info("trial ended", study_id=study.study_id, number=number, state=state)
