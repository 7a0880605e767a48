"""What the search service does on each event: it tells the study's search about it.

An event about a trial names its study, or the trial is found by its job. The study's row is locked,
so its events are handled one by one, whatever partition they come from. Commands of people are in
`commands`.
"""

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
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
from services.hpo import commands, messages, requests, searches, spending, store
from services.hpo.core import inputs
from services.runtime import logs
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx

log = logs.get()

MAX_DETAIL = 1024


async def on_job_succeeded(tx: Tx, event: Event[JobSucceeded]) -> None:
    job = event.payload
    result = None if job.result is None else job.result.model_dump_json()
    detail = "" if result else "the job succeeded without a result"
    await _on_job_end(tx, event, job.job_id, job.trial, (result, detail))


async def on_job_failed(tx: Tx, event: Event[JobFailed]) -> None:
    job = event.payload
    await _on_job_end(tx, event, job.job_id, job.trial, (None, f"the job failed: {job.detail}"))


async def on_job_cancelled(tx: Tx, event: Event[JobCancelled]) -> None:
    job = event.payload
    detail = f"the job was cancelled: {job.reason}" if job.reason else "the job was cancelled"
    await _on_job_end(tx, event, job.job_id, job.trial, (None, detail))


async def on_job_request_rejected(tx: Tx, event: Event[JobRequestRejected]) -> None:
    """Only the answer to our own job.submit ends a trial: others send commands about its job too,
    and where we asked to stop or pause one that has ended, its end tells the rest.
    """
    refusal = event.payload
    place = await store.trial_of_command(tx.connection, refusal.job_id, refusal.command_event_id)
    if place is None:
        return
    detail = f"the job was refused: {refusal.reason.value}: {refusal.detail}"[:MAX_DETAIL]
    await _tell(tx, event, place, inputs.Ended(place[1], None, detail, is_refused=True))


async def on_job_stopped(tx: Tx, event: Event[JobStopped]) -> None:
    job = event.payload
    if (place := _place(event, job.job_id, job.trial)) is not None:
        await _tell(tx, event, place, inputs.Stopped(place[1], job.reason[:MAX_DETAIL]))


async def on_job_paused(tx: Tx, event: Event[JobPaused]) -> None:
    job = event.payload
    if (place := _place(event, job.job_id, job.trial)) is not None:
        await _tell(tx, event, place, inputs.Paused(place[1]))


async def on_job_resumed(tx: Tx, event: Event[JobResumed]) -> None:
    job = event.payload
    if (place := _place(event, job.job_id, job.trial)) is not None:
        await _tell(tx, event, place, inputs.Resumed(place[1]))


async def on_trial_measured(tx: Tx, event: Event[TrialMeasured]) -> None:
    job = event.payload
    trial = TrialOf(study_id=job.study_id, number=job.number)
    if (place := _place(event, job.job_id, trial)) is not None:
        await _tell(tx, event, place, inputs.MeasuredAt(place[1], job.step, job.value))


async def on_allocation_granted(tx: Tx, event: Event[AllocationGranted]) -> None:
    granted = event.payload
    if (place := await store.trial_of_job(tx.connection, granted.job_id)) is not None:
        await spending.grant(tx.connection, spending.Held(*place), granted)
        await _tell(tx, event, place, inputs.Granted(place[1]))


async def on_allocation_released(tx: Tx, event: Event[AllocationReleased]) -> None:
    released = event.payload
    if (place := await store.trial_of_job(tx.connection, released.job_id)) is not None:
        await spending.release(tx.connection, spending.Held(*place), released)
        await _tell(tx, event, place, inputs.Released(place[1]))


async def on_charge_recorded(tx: Tx, event: Event[ChargeRecorded]) -> None:
    """The search is told when the clock is read the next time: see `clock`."""
    if event.payload.reverses_charge_id is None:
        await spending.note_price(tx.connection, event.payload)
    place = await store.trial_of_job(tx.connection, event.payload.job_id)
    if place is not None:
        await spending.charge(tx.connection, place[0], event.payload)


async def _on_job_end(
    tx: Tx,
    event: Event[Payload],
    job_id: str,
    trial: TrialOf | None,
    ended: tuple[str | None, str],
) -> None:
    if trial is None:
        return
    result, detail = ended
    end = store.JobEnd(trial.number, result, detail[:MAX_DETAIL], is_refused=False)
    study = await store.lock_study(tx.connection, trial.study_id)
    if study is None:
        # A job that only claims to be a trial's has another id.
        request_id = messages.request_id_of(trial.study_id, trial.number)
        if job_id != job_id_for(event.tenant_id, request_id):
            return
        await store.insert_job_end(tx.connection, job_id, trial.study_id, end)
        return
    if _place(event, job_id, trial) is None:
        return
    spec = messages.read_spec(study.spec)
    await searches.tell(tx, study, messages.to_ended(end, spec), event)


def _place(event: Event[Payload], job_id: str, trial: TrialOf | None) -> tuple[str, int] | None:
    """The trial whose job this is; None for a job that only claims to be one's."""
    if trial is None:
        return None
    request_id = messages.request_id_of(trial.study_id, trial.number)
    is_its_job = job_id == job_id_for(event.tenant_id, request_id)
    return (trial.study_id, trial.number) if is_its_job else None


async def _tell(tx: Tx, event: Event[Payload], place: tuple[str, int], given: inputs.Input) -> None:
    study = await store.lock_study(tx.connection, place[0])
    if study is not None and not study.is_finished:
        await searches.tell(tx, study, given, event)


HANDLERS: HandlerTable = {
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
REFUSALS: RefusalTable = {
    StudySubmit: requests.on_invalid_study,
    StudyImport: requests.on_invalid_study,
    **dict.fromkeys(commands.COMMANDS, commands.on_invalid_command),
}
