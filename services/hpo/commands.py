"""Commands about studies that run: pause, resume, stop, change, cancel, ask, report and tell.

Each is carried out, does nothing because it was before, or is refused with a reason.
"""

from dataclasses import asdict, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, InvalidPayload
from drivetrain_schemas.ids import StudyId
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.studies import (
    StudyAsk,
    StudyCancel,
    StudyCancelling,
    StudyCancelRejected,
    StudyChange,
    StudyChanged,
    StudyCommandRejected,
    StudyPause,
    StudyPaused,
    StudyResume,
    StudyResumed,
    StudyStop,
)
from drivetrain_schemas.trials import TrialReport, TrialTell
from services.hpo import instruments, messages, spending, store
from services.hpo.core import inputs
from services.hpo.core.limits import changed
from services.hpo.core.search import Search
from services.hpo.work import Study, Work
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

COMMANDS: tuple[type[Payload], ...] = (
    StudyPause,
    StudyResume,
    StudyStop,
    StudyChange,
    StudyAsk,
    TrialReport,
    TrialTell,
)
_STUDY_ID: TypeAdapter[str] = TypeAdapter(StudyId)
Command = (
    Event[StudyPause]
    | Event[StudyResume]
    | Event[StudyStop]
    | Event[StudyChange]
    | Event[StudyAsk]
    | Event[TrialReport]
    | Event[TrialTell]
)
Reason = Literal[
    "no_such_study",
    "no_such_trial",
    "already_finished",
    "not_external",
    "not_paused",
    "too_many_running",
    "no_further_point",
    "invalid",
]


async def on_study_cancel(work: Work, event: Event[StudyCancel]) -> None:
    """Cancel the jobs of the running trials; the study ends when the last of them has ended."""
    command = event.payload
    study = await work.lock(command.study_id)
    if study is None or study.tenant_id != event.tenant_id:
        await _reject_cancel(
            work.tx, event, "no_such_study", f"there is no study {command.study_id}"
        )
        return
    if study.is_finished:
        await _reject_cancel(work.tx, event, "already_finished", "the study has ended")
        return
    if study.row.cancel_reason is not None:
        work.tx.after_commit(instruments.STUDY_CANCELS.labels("repeated").inc)
        return
    await store.cancel_study(work.tx.connection, study.study_id, command.reason)
    study.row = replace(study.row, cancel_reason=command.reason)
    cancelling = StudyCancelling(study_id=study.study_id, reason=command.reason)
    await work.tx.emit(cancelling, tenant_id=event.tenant_id, cause=event)
    work.tx.after_commit(instruments.STUDY_CANCELS.labels("accepted").inc)
    log.info("study is being cancelled", study_id=study.study_id, reason=command.reason)
    await work.tell(study, inputs.CancelStudy(), event)


async def on_study_pause(work: Work, event: Event[StudyPause]) -> None:
    study = await _running(work, event)
    if study is None:
        return
    command = event.payload
    paused = StudyPaused(study_id=study.study_id, reason=command.reason, trials=command.trials)
    await _accept(work.tx, event, paused)
    await work.tell(study, inputs.PauseStudy(command.trials), event)


async def on_study_resume(work: Work, event: Event[StudyResume]) -> None:
    study = await _running(work, event)
    if study is None:
        return
    search = (await work.load(study)).search
    if search.status.paused is None:
        await _reject(work.tx, event, "not_paused", "the study is not paused")
        return
    await _accept(work.tx, event, StudyResumed(study_id=study.study_id))
    await work.tell(study, inputs.ResumeStudy(), event)


async def on_study_stop(work: Work, event: Event[StudyStop]) -> None:
    study = await _running(work, event)
    if study is not None:
        _count(work.tx, event, "accepted")
        await work.tell(study, inputs.StopStudy(event.payload.reason), event)


async def on_study_change(work: Work, event: Event[StudyChange]) -> None:
    """A study that completed runs again when it is given more to do."""
    study = await _known(work, event)
    if study is None:
        return
    command = event.payload
    search = (await work.load(study)).search
    status, now = search.status, search.status.numbers
    if status.is_cancelled or status.failing:
        await _reject(work.tx, event, "already_finished", "the study was cancelled, or has failed")
        return
    if search.is_ending_early:
        detail = "its running trials are being stopped; change the study when it has ended"
        await _reject(work.tx, event, "already_finished", detail)
        return
    if error := _error_of_change(command, len(search.trials)):
        await _reject(work.tx, event, "invalid", error.message, (error,))
        return
    limits = now.limits if command.limits is None else messages.to_limits(command.limits)
    if command.changed_limits is not None:
        limits = changed(limits, messages.to_limits(command.changed_limits))
    numbers = inputs.ChangeStudy(
        max_trials=command.max_trials or now.max_trials,
        max_parallel_trials=command.max_parallel_trials or now.max_parallel_trials,
        limits=asdict(limits),
    )
    if status.is_finished and (error := _error_of_revival(search, numbers.max_trials)):
        await _reject(work.tx, event, "invalid", error.message, (error,))
        return
    announced = StudyChanged(
        study_id=study.study_id,
        max_trials=numbers.max_trials,
        max_parallel_trials=numbers.max_parallel_trials,
        limits=messages.of_limits(limits),
        is_revived=status.is_finished,
    )
    if status.is_finished:
        await store.revive_study(work.tx.connection, study.study_id)
    await spending.watch(work.tx.connection, study.study_id, limits)
    await _accept(work.tx, event, announced)
    await work.tell(study, numbers, event)


async def on_study_ask(work: Work, event: Event[StudyAsk]) -> None:
    study = await _external(work, event)
    if study is None:
        return
    request_id = event.payload.request_id
    if request_id in (await work.load(study)).requests:
        _count(work.tx, event, "repeated")
        return
    refused = await work.tell(study, inputs.Ask(request_id), event)
    if refused is not None:
        await _reject(work.tx, event, refused.reason, refused.detail)
    else:
        _count(work.tx, event, "accepted")


async def on_trial_report(work: Work, event: Event[TrialReport]) -> None:
    """The first report at or after a rung is the trial's value there."""
    study = await _external(work, event)
    if study is None or not await _has_trial(work, event, study):
        return
    report = event.payload
    _count(work.tx, event, "accepted")
    for rung in study.search.rungs_reached(report.number, report.step):
        await work.tell(study, inputs.MeasuredAt(report.number, rung, report.value), event)


async def on_trial_tell(work: Work, event: Event[TrialTell]) -> None:
    study = await _external(work, event)
    if study is None or not await _has_trial(work, event, study):
        return
    command = event.payload
    spec = study.spec
    if error := messages.error_of_values(spec, command.values):
        await _reject(work.tx, event, "invalid", error.message, (error,))
        return
    _count(work.tx, event, "accepted")
    await work.tell(study, messages.to_told(spec, command), event)


async def on_invalid_command(tx: Tx, invalid: InvalidPayload) -> bool:
    """Answer an invalid command; False without a study to answer about."""
    data = invalid.data if isinstance(invalid.data, dict) else {}
    try:
        study_id = _STUDY_ID.validate_python(data.get("study_id"))
    except ValidationError:
        return False
    rejected = StudyCommandRejected(
        study_id=study_id,
        command_event_id=invalid.attributes.event_id,
        command=invalid.attributes.type,
        reason="invalid",
        detail=invalid.detail[: messages.MAX_DETAIL],
        errors=invalid.errors,
    )
    await tx.emit(rejected, tenant_id=invalid.attributes.tenant_id)
    tx.after_commit(instruments.STUDY_COMMANDS.labels(invalid.attributes.type, "invalid").inc)
    return True


async def _known(work: Work, event: Command) -> Study | None:
    study_id = event.payload.study_id
    study = await work.lock(study_id)
    if study is None or study.tenant_id != event.tenant_id:
        await _reject(work.tx, event, "no_such_study", f"there is no study {study_id}")
        return None
    return study


async def _running(work: Work, event: Command) -> Study | None:
    study = await _known(work, event)
    if study is not None and study.is_finished:
        await _reject(work.tx, event, "already_finished", "the study has ended")
        return None
    return study


async def _external(work: Work, event: Command) -> Study | None:
    study = await _running(work, event)
    if study is not None and not (await work.load(study)).spec.external:
        detail = "the study runs its trials as jobs; only one with external: true takes this"
        await _reject(work.tx, event, "not_external", detail)
        return None
    return study


async def _has_trial(
    work: Work, event: Event[TrialReport] | Event[TrialTell], study: Study
) -> bool:
    number = event.payload.number
    search = (await work.load(study)).search
    if number in search.opened:
        return True
    if number < len(search.trials):
        await _reject(work.tx, event, "already_finished", f"trial {number} has ended")
    else:
        await _reject(work.tx, event, "no_such_trial", f"the study has no trial {number}")
    return False


def _error_of_change(command: StudyChange, num_proposed: int) -> FieldError | None:
    if not command.model_dump(exclude={"study_id"}, exclude_none=True):
        return FieldError(field="max_trials", message="nothing changes", fix="write what changes")
    if command.max_trials is not None and command.max_trials < num_proposed:
        message = f"is below the number of trials proposed so far, {num_proposed}"
        fix = f"write {num_proposed} or more, or stop the study"
        return FieldError(field="max_trials", message=message, fix=fix)
    return None


def _error_of_revival(search: Search, max_trials: int) -> FieldError | None:
    """Why a study that has ended would start no trial."""
    message, fix = "leaves nothing to do for a study that has ended", ""
    if max_trials <= len(search.trials):
        fix = f"write more than {len(search.trials)}"
    elif not search.pruner.may_propose(search.trials):
        fix = "submit another study with warm_start: no trial of this population runs any more"
    return FieldError(field="max_trials", message=message, fix=fix) if fix else None


async def _accept(tx: Tx, event: Command, answer: Payload) -> None:
    await tx.emit(answer, tenant_id=event.tenant_id, cause=event)
    _count(tx, event, "accepted")
    log.info("study command", command=event.type, study_id=event.payload.study_id)


async def _reject(
    tx: Tx, event: Command, reason: Reason, detail: str, errors: tuple[FieldError, ...] = ()
) -> None:
    rejected = StudyCommandRejected(
        study_id=event.payload.study_id,
        command_event_id=event.event_id,
        command=event.type,
        reason=reason,
        detail=detail,
        errors=errors,
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    _count(tx, event, reason)
    log.info("study command rejected", study_id=rejected.study_id, reason=reason)


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


def _count(tx: Tx, event: Command, answer: str) -> None:
    tx.after_commit(instruments.STUDY_COMMANDS.labels(event.type, answer).inc)
