"""What the search service does on each event: it tells the study's search about it.

An event about a trial names its study, or the trial is found by its job. The study's row is locked,
so its events are handled one by one, whatever partition they come from. The events of a batch are
handled in order, and what they change is written at its end (`work`). Commands of people are in
`commands`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import (
    JobCancelled,
    JobFailed,
    JobPaused,
    JobRequestRejected,
    JobResumed,
    JobStopped,
    JobSucceeded,
    TrialOf,
)
from drivetrain_schemas.metrics import TrialMeasured
from drivetrain_schemas.studies import (
    StudyAsk,
    StudyCancel,
    StudyChange,
    StudyImport,
    StudyPause,
    StudyResume,
    StudyStop,
    StudySubmit,
)
from drivetrain_schemas.trials import TrialReport, TrialTell
from services.hpo import commands, messages, requests, store
from services.hpo.core import inputs
from services.hpo.work import Work
from services.runtime import logs
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx

log = logs.get()


async def on_job_succeeded(work: Work, event: Event[JobSucceeded]) -> None:
    job = event.payload
    result = None if job.result is None else job.result.model_dump_json()
    detail = "" if result else "the job succeeded without a result"
    await _on_job_end(work, event, job.job_id, job.trial, (result, detail))


async def on_job_failed(work: Work, event: Event[JobFailed]) -> None:
    job = event.payload
    await _on_job_end(work, event, job.job_id, job.trial, (None, f"the job failed: {job.detail}"))


async def on_job_cancelled(work: Work, event: Event[JobCancelled]) -> None:
    job = event.payload
    detail = f"the job was cancelled: {job.reason}" if job.reason else "the job was cancelled"
    await _on_job_end(work, event, job.job_id, job.trial, (None, detail))


async def on_job_request_rejected(work: Work, event: Event[JobRequestRejected]) -> None:
    """Only a refusal of our own job.submit ends a trial. Other clients send commands about its job
    too, and a refused stop or pause of ours means that the job has ended: its end follows.
    """
    refusal = event.payload
    trial = work.trial_of_job(refusal.job_id)
    if trial is None or trial.command_event_id != refusal.command_event_id:
        return
    detail = f"the job was refused: {refusal.reason.value}: {refusal.detail}"[: messages.MAX_DETAIL]
    ended = inputs.Ended(trial.number, None, detail, is_refused=True)
    await _tell(work, event, trial.study_id, ended)


async def on_job_stopped(work: Work, event: Event[JobStopped]) -> None:
    job = event.payload
    if (trial := _trial(event, job.job_id, job.trial)) is not None:
        stopped = inputs.Stopped(trial.number, job.reason[: messages.MAX_DETAIL])
        await _tell(work, event, trial.study_id, stopped)


async def on_job_paused(work: Work, event: Event[JobPaused]) -> None:
    job = event.payload
    if (trial := _trial(event, job.job_id, job.trial)) is not None:
        await _tell(work, event, trial.study_id, inputs.Paused(trial.number))


async def on_job_resumed(work: Work, event: Event[JobResumed]) -> None:
    job = event.payload
    if (trial := _trial(event, job.job_id, job.trial)) is not None:
        await _tell(work, event, trial.study_id, inputs.Resumed(trial.number))


async def on_trial_measured(work: Work, event: Event[TrialMeasured]) -> None:
    measured = event.payload
    named = TrialOf(study_id=measured.study_id, number=measured.number)
    if (trial := _trial(event, measured.job_id, named)) is None:
        return
    # Also of a study that has ended: when it is extended, new trials are compared with this one.
    if (study := await work.lock(trial.study_id)) is not None:
        at = inputs.MeasuredAt(trial.number, measured.step, measured.value)
        await work.tell(study, at, event)


async def on_allocation_granted(work: Work, event: Event[AllocationGranted]) -> None:
    granted = event.payload
    if (trial := work.trial_of_job(granted.job_id)) is not None:
        work.spending.grant(trial.study_id, granted)
        await _tell(work, event, trial.study_id, inputs.Granted(trial.number))


async def on_allocation_released(work: Work, event: Event[AllocationReleased]) -> None:
    released = event.payload
    if (trial := work.trial_of_job(released.job_id)) is not None:
        work.spending.release(trial.study_id, released)
        await _tell(work, event, trial.study_id, inputs.Released(trial.number))


async def on_charge_recorded(work: Work, event: Event[ChargeRecorded]) -> None:
    """The search is told when the clock is read the next time: see `clock`."""
    if event.payload.reverses_charge_id is None:
        work.spending.note_price(event.payload)
    if (trial := work.trial_of_job(event.payload.job_id)) is not None:
        work.spending.charge(trial.study_id, event.payload)


async def _on_job_end(
    work: Work,
    event: Event[Payload],
    job_id: str,
    trial: TrialOf | None,
    ended: tuple[str | None, str],
) -> None:
    # A job that only claims to be a trial's has another id.
    if _trial(event, job_id, trial) is None:
        return
    assert trial is not None
    result, detail = ended
    end = store.JobEnd(trial.number, result, detail[: messages.MAX_DETAIL])
    study = await work.lock(trial.study_id)
    if study is None:
        await store.insert_job_end(work.tx.connection, job_id, trial.study_id, end)
    elif not study.is_finished:
        loaded = await work.load(study)
        opened = loaded.search.opened.get(end.number)
        await work.tell(study, messages.to_ended(end, loaded.spec), event)
        # Measured while the trial was to be paused, which came after its end.
        for one in opened.late if opened else ():
            late = inputs.MeasuredAt(end.number, one.step, one.value)
            await work.tell(study, late, event)


def _trial(event: Event[Payload], job_id: str, trial: TrialOf | None) -> TrialOf | None:
    """The trial whose job this is; None for a job that only claims to be one's."""
    if trial is None:
        return None
    own = messages.job_id_of(event.tenant_id, trial.study_id, trial.number)
    return trial if job_id == own else None


async def _tell(work: Work, event: Event[Payload], study_id: str, given: inputs.Input) -> None:
    study = await work.lock(study_id)
    if study is not None and not study.is_finished:
        await work.tell(study, given, event)


_Handler = Callable[[Work, Any], Awaitable[None]]
_HANDLERS: Mapping[type[Payload], _Handler] = {
    StudySubmit: requests.on_study_submit,
    StudyImport: requests.on_study_import,
    StudyCancel: commands.on_study_cancel,
    StudyPause: commands.on_study_pause,
    StudyResume: commands.on_study_resume,
    StudyStop: commands.on_study_stop,
    StudyChange: commands.on_study_change,
    StudyAsk: commands.on_study_ask,
    TrialReport: commands.on_trial_report,
    TrialTell: commands.on_trial_tell,
    JobSucceeded: on_job_succeeded,
    JobFailed: on_job_failed,
    JobCancelled: on_job_cancelled,
    JobStopped: on_job_stopped,
    JobPaused: on_job_paused,
    JobResumed: on_job_resumed,
    JobRequestRejected: on_job_request_rejected,
    TrialMeasured: on_trial_measured,
    AllocationGranted: on_allocation_granted,
    AllocationReleased: on_allocation_released,
    ChargeRecorded: on_charge_recorded,
}


async def handle_batch(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """In order, as one by one would; each study is locked, loaded and written once."""
    work = Work(tx)
    await work.begin(
        (study_id for event in events if (study_id := _study_of(event.payload)) is not None),
        (event.payload.job_id for event in events if isinstance(event.payload, _BY_JOB)),
    )
    for event in events:
        await _HANDLERS[type(event.payload)](work, event)
    await work.end()


def _study_of(payload: Any) -> str | None:
    """The study that the event names."""
    trial: TrialOf | None = getattr(payload, "trial", None)
    study_id: str | None = getattr(payload, "study_id", None)
    return study_id if trial is None else trial.study_id


async def _handle(tx: Tx, event: Event[Any]) -> None:
    await handle_batch(tx, [event])


# Of these the trial is found by its job.
_BY_JOB = (JobRequestRejected, AllocationGranted, AllocationReleased, ChargeRecorded)
HANDLERS: HandlerTable = dict.fromkeys(_HANDLERS, _handle)
REFUSALS: RefusalTable = {
    StudySubmit: requests.on_invalid_study,
    StudyImport: requests.on_invalid_study,
    **dict.fromkeys(commands.COMMANDS, commands.on_invalid_command),
}
