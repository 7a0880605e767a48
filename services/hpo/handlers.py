"""What the search service does on each event.

A request becomes a study; the end of a trial's job is kept, and then `_advance` moves the study as
far as the rows allow. `_advance` works from rows and not from the current event, so the order of
ends does not matter, even if one is read before its study.
"""

from typing import Literal

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.base import Payload, canonical_json
from drivetrain_schemas.envelope import Event, InvalidPayload
from drivetrain_schemas.ids import RequestId, study_id_for
from drivetrain_schemas.jobs import (
    FieldError,
    JobCancel,
    JobCancelled,
    JobFailed,
    JobRequestRejected,
    JobSucceeded,
    TrialOf,
)
from drivetrain_schemas.studies import (
    StudyCancel,
    StudyCancelling,
    StudyCancelRejected,
    StudyRequestRejected,
    StudyStarted,
    StudySubmit,
)
from services.hpo import actions, instruments, messages, store
from services.hpo.core.search import Progress
from services.runtime import logs
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx

log = logs.get()

MAX_DETAIL = 1024
_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)


async def on_study_submit(tx: Tx, event: Event[StudySubmit]) -> None:
    command = event.payload
    study_id = study_id_for(event.tenant_id, command.request_id)
    refusal = _refusal(command, study_id)
    if refusal is not None:
        await _reject(tx, event, *refusal)
        return
    study = store.StudyRow(
        study_id=study_id,
        tenant_id=event.tenant_id,
        request_id=command.request_id,
        spec=canonical_json(command.spec),
        num_trials=messages.to_search(command.spec).num_trials,
        progress=Progress(),
    )
    started_at = await store.insert_study(tx.connection, study)
    if started_at is None:
        await _on_repeated_request(tx, event, study)
        return
    started = StudyStarted(
        study_id=study_id,
        request_id=command.request_id,
        spec=command.spec,
        num_trials=study.num_trials,
        started_at=started_at,
    )
    await tx.emit(started, tenant_id=event.tenant_id, cause=event)
    _count_request(tx, "started")
    log.info("study started", study_id=study_id, tenant_id=event.tenant_id)
    await _advance(tx, study_id, event)


async def on_study_cancel(tx: Tx, event: Event[StudyCancel]) -> None:
    """Cancel the jobs of the running trials; the study ends when the last of them has ended."""
    command = event.payload
    study = await store.lock_study(tx.connection, command.study_id)
    if study is None or study.tenant_id != event.tenant_id:
        detail = f"there is no study {command.study_id}"
        await _reject_cancel(tx, event, "no_such_study", detail)
        return
    if study.is_finished:
        await _reject_cancel(tx, event, "already_finished", "the study has ended")
        return
    if study.progress.is_cancelled:
        tx.after_commit(instruments.STUDY_CANCELS.labels("repeated").inc)
        return
    await store.cancel_study(tx.connection, study.study_id, command.reason)
    cancelling = StudyCancelling(study_id=study.study_id, reason=command.reason)
    await tx.emit(cancelling, tenant_id=event.tenant_id, cause=event)
    for job_id in await store.running_jobs(tx.connection, study.study_id):
        stop = JobCancel(job_id=job_id, reason="its study was cancelled")
        await tx.emit(stop, tenant_id=event.tenant_id, cause=event)
    tx.after_commit(instruments.STUDY_CANCELS.labels("accepted").inc)
    log.info("study is being cancelled", study_id=study.study_id, reason=command.reason)
    await _advance(tx, study.study_id, event)


async def on_job_succeeded(tx: Tx, event: Event[JobSucceeded]) -> None:
    job = event.payload
    result = None if job.result is None else job.result.model_dump_json()
    detail = "" if result else "the job succeeded without a result"
    await _on_job_end(tx, event, job.job_id, job.trial, result, detail)


async def on_job_failed(tx: Tx, event: Event[JobFailed]) -> None:
    job = event.payload
    await _on_job_end(tx, event, job.job_id, job.trial, None, f"the job failed: {job.detail}")


async def on_job_cancelled(tx: Tx, event: Event[JobCancelled]) -> None:
    job = event.payload
    detail = f"the job was cancelled: {job.reason}" if job.reason else "the job was cancelled"
    await _on_job_end(tx, event, job.job_id, job.trial, None, detail)


async def on_job_request_rejected(tx: Tx, event: Event[JobRequestRejected]) -> None:
    """Only the answer to our own command ends a trial: others may send commands about its job."""
    refusal = event.payload
    trial = await store.find_trial_of_command(
        tx.connection, refusal.job_id, refusal.command_event_id
    )
    if trial is None:
        return
    detail = f"the job was refused: {refusal.reason.value}: {refusal.detail}"
    await _on_job_end(tx, event, refusal.job_id, trial, None, detail, is_refused=True)


async def on_invalid_study(tx: Tx, invalid: InvalidPayload) -> bool:
    """Answer an invalid request; False without a request id to answer."""
    data = invalid.data if isinstance(invalid.data, dict) else {}
    try:
        request_id = _REQUEST_ID.validate_python(data.get("request_id"))
    except ValidationError:
        return False
    attributes = invalid.attributes
    rejected = StudyRequestRejected(
        study_id=study_id_for(attributes.tenant_id, request_id),
        request_id=request_id,
        command_event_id=attributes.event_id,
        reason="invalid_spec",
        detail=invalid.detail[:MAX_DETAIL],
        errors=invalid.errors,
    )
    await tx.emit(rejected, tenant_id=attributes.tenant_id)
    _note_rejection(tx, rejected)
    return True


def _refusal(
    command: StudySubmit, study_id: str
) -> tuple[Literal["invalid_spec", "too_large"], str, tuple[FieldError, ...]] | None:
    if command.study_id not in (None, study_id):
        wrong = FieldError(
            field="study_id",
            message=f"the id that follows from tenant and request_id is {study_id}",
            fix="leave it out",
        )
        return "invalid_spec", wrong.message, (wrong,)
    if errors := messages.unsupported(command.spec):
        return "invalid_spec", errors[0].message, errors
    if messages.is_too_large(command):
        return "too_large", "the study is too large to be carried by events", ()
    errors = messages.errors_of_trials(command.spec)
    if errors:
        return "invalid_spec", "the jobs of its trials would not be valid", errors
    return None


async def _on_repeated_request(tx: Tx, event: Event[StudySubmit], asked: store.StudyRow) -> None:
    """The same request again is the same study; another one under its id is refused."""
    known = await store.lock_study(tx.connection, asked.study_id)
    assert known is not None
    if canonical_json(messages.read_spec(known.spec)) == asked.spec:
        _count_request(tx, "repeated")
        return
    detail = f"the request id {asked.request_id} belongs to another study"
    await _reject(tx, event, "id_conflict", detail, ())


async def _reject(
    tx: Tx,
    event: Event[StudySubmit],
    reason: Literal["invalid_spec", "id_conflict", "too_large"],
    detail: str,
    errors: tuple[FieldError, ...],
) -> None:
    rejected = StudyRequestRejected(
        study_id=study_id_for(event.tenant_id, event.payload.request_id),
        request_id=event.payload.request_id,
        command_event_id=event.event_id,
        reason=reason,
        detail=detail,
        errors=errors,
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    _note_rejection(tx, rejected)


async def _reject_cancel(
    tx: Tx,
    event: Event[StudyCancel],
    reason: Literal["no_such_study", "already_finished"],
    detail: str,
) -> None:
    rejected = StudyCancelRejected(
        study_id=event.payload.study_id,
        command_event_id=event.event_id,
        reason=reason,
        detail=detail,
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    tx.after_commit(instruments.STUDY_CANCELS.labels(reason).inc)
    log.info("study cancel rejected", study_id=rejected.study_id, reason=reason)


async def _on_job_end(
    tx: Tx,
    event: Event[Payload],
    job_id: str,
    trial: TrialOf | tuple[str, int] | None,
    result: str | None,
    detail: str,
    *,
    is_refused: bool = False,
) -> None:
    if trial is None:
        return
    place = (trial.study_id, trial.number) if isinstance(trial, TrialOf) else trial
    if await store.insert_job_end(
        tx.connection, job_id, place, result, detail[:MAX_DETAIL], is_refused=is_refused
    ):
        await _advance(tx, place[0], event)


async def _advance(tx: Tx, study_id: str, cause: Event[Payload]) -> None:
    """Settle what ended and propose what may run, until nothing is left to do."""
    study = await store.lock_study(tx.connection, study_id)
    if study is None:
        return
    while await actions.take(tx, study, cause):
        study = await store.lock_study(tx.connection, study_id)
        assert study is not None


def _note_rejection(tx: Tx, rejected: StudyRequestRejected) -> None:
    _count_request(tx, rejected.reason)
    log.info("study request rejected", study_id=rejected.study_id, reason=rejected.reason)


def _count_request(tx: Tx, answer: str) -> None:
    tx.after_commit(instruments.STUDY_REQUESTS.labels(answer).inc)


HANDLERS: HandlerTable = {
    StudySubmit: on_study_submit,
    StudyCancel: on_study_cancel,
    JobSucceeded: on_job_succeeded,
    JobFailed: on_job_failed,
    JobCancelled: on_job_cancelled,
    JobRequestRejected: on_job_request_rejected,
}
REFUSALS: RefusalTable = {StudySubmit: on_invalid_study}
