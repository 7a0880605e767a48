"""Commands about jobs: submit and cancel, and the answer to a request that cannot be read.

Each handler: load -> decide -> save -> emit, under the writer lock, and then wake the loop. A
refusal is a `job_request.rejected` that names the command; it changes no job.
"""

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.base import canonical_json
from drivetrain_schemas.envelope import Cause, Event, InvalidPayload
from drivetrain_schemas.ids import JobId, RequestId, job_id_for
from drivetrain_schemas.jobs import (
    FieldError,
    JobCancel,
    JobCancelling,
    JobQueued,
    JobRequestRejected,
    JobState,
    JobSubmit,
    RejectionReason,
)
from drivetrain_schemas.runs import RunState
from services.runtime import logs
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx
from services.scheduler import instruments, store, store_runs, transitions
from services.scheduler.core.admission import Refusal, Request, refuse
from services.scheduler.core.model import QueuedJob
from services.scheduler.store import JobRow

log = logs.get()

MAX_DETAIL = 1000
_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)
_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)


class Commands:
    """The handlers of one scheduler. `wake` shortens the loop's wait."""

    def __init__(self, wake: Callable[[], None], *, can_run_images: bool) -> None:
        self._wake = wake
        self._can_run_images = can_run_images

    @property
    def handlers(self) -> HandlerTable:
        return {JobSubmit: self.on_submit, JobCancel: self.on_cancel}

    @property
    def refusals(self) -> RefusalTable:
        return {JobSubmit: refuse_invalid, JobCancel: refuse_invalid}

    async def on_submit(self, tx: Tx, event: Event[JobSubmit]) -> None:
        """Accept the request, know it again, or refuse it."""
        payload = event.payload
        job_id = job_id_for(event.tenant_id, payload.request_id)
        await store.lock(tx.connection)
        known = await store.job(tx.connection, job_id)
        if payload.job_id not in (None, job_id):
            await _reject(tx, event, job_id, _wrong_job_id(job_id))
        elif known is not None and _is_same(known, payload):
            instruments.REQUESTS.labels("known").inc()
        elif known is not None:
            await _reject(tx, event, job_id, _conflict(known))
        else:
            await self._accept_or_refuse(tx, event, job_id)

    async def on_cancel(self, tx: Tx, event: Event[JobCancel]) -> None:
        """End a waiting job at once; tell a running one to stop."""
        job_id = event.payload.job_id
        await store.lock(tx.connection)
        job = await store.job(tx.connection, job_id)
        if job is None or job.tenant_id != event.tenant_id:
            refusal = Refusal(RejectionReason.NO_SUCH_JOB, f"there is no job {job_id}", "job_id")
            await _reject(tx, event, job_id, refusal)
        elif job.state.is_final:
            detail = f"the job has finished: {job.state}"
            refusal = Refusal(RejectionReason.ALREADY_FINISHED, detail, "job_id")
            await _reject(tx, event, job_id, refusal)
        elif not job.is_cancelled:
            await self._cancel(tx, event, job_id)

    async def _accept_or_refuse(self, tx: Tx, event: Event[JobSubmit], job_id: str) -> None:
        spec = event.payload.spec
        request = Request(
            job=QueuedJob(
                job_id,
                spec.resources.pool,
                spec.resources.devices,
                submission=0,
                device_type=spec.resources.device_type,
            ),
            has_image=spec.image is not None,
            num_spec_bytes=len(spec.model_dump_json().encode()),
        )
        nodes = await store.nodes(tx.connection)
        refusal = refuse(request, nodes, can_run_images=self._can_run_images)
        if refusal is not None:
            await _reject(tx, event, job_id, refusal)
            return
        queued_at = await store.insert_job(tx.connection, job_id, event)
        queued = JobQueued(
            job_id=job_id,
            request_id=event.payload.request_id,
            spec=spec,
            trial=event.payload.trial,
            queued_at=queued_at,
        )
        await tx.emit(queued, tenant_id=event.tenant_id, cause=event)
        tx.after_commit(self._wake)
        instruments.REQUESTS.labels("accepted").inc()
        log.info("job queued", job_id=job_id, tenant_id=event.tenant_id)

    async def _cancel(self, tx: Tx, event: Event[JobCancel], job_id: str) -> None:
        reason = event.payload.reason
        await store.set_cancelled(tx.connection, job_id, reason)
        cancelling = JobCancelling(job_id=job_id, reason=reason)
        await tx.emit(cancelling, tenant_id=event.tenant_id, cause=event)
        job = await store.job(tx.connection, job_id)
        assert job is not None
        run = await store_runs.live_run(tx.connection, job_id)
        if job.state is JobState.QUEUED:
            await transitions.cancel_queued(tx, job)
        elif run is not None and run.state is not RunState.STOPPING:
            await transitions.stop(tx, run, "cancel")
        tx.after_commit(self._wake)
        instruments.REQUESTS.labels("cancelled").inc()


async def refuse_invalid(tx: Tx, invalid: InvalidPayload) -> bool:
    """Answer a request whose payload does not fit; False when it does not say which job it means.

    The runtime then parks the record.
    """
    attributes = invalid.attributes
    request_id = _valid(_REQUEST_ID, invalid.data, "request_id")
    if invalid.payload_class is JobSubmit and request_id is not None:
        job_id: str | None = job_id_for(attributes.tenant_id, request_id)
    else:
        job_id = _valid(_JOB_ID, invalid.data, "job_id")
    if job_id is None:
        return False
    rejected = JobRequestRejected(
        job_id=job_id,
        request_id=request_id,
        command_event_id=attributes.event_id,
        reason=RejectionReason.INVALID_SPEC,
        detail=invalid.detail[:MAX_DETAIL],
        errors=invalid.errors,
    )
    await tx.emit(rejected, tenant_id=attributes.tenant_id, cause=_cause(invalid))
    instruments.REQUESTS.labels(str(rejected.reason)).inc()
    log.info("job request rejected", job_id=job_id, reason=str(rejected.reason))
    return True


def _cause(invalid: InvalidPayload) -> Cause:
    """The command that could not be read: the answer names it and carries on its trace."""
    attributes = invalid.attributes
    return Cause(attributes.event_id, attributes.correlation_id, attributes.traceparent)


async def _reject(
    tx: Tx, event: Event[JobSubmit] | Event[JobCancel], job_id: str, refusal: Refusal
) -> None:
    error = FieldError(field=refusal.field, message=refusal.detail, fix=refusal.fix)
    payload = event.payload
    rejected = JobRequestRejected(
        job_id=job_id,
        request_id=payload.request_id if isinstance(payload, JobSubmit) else None,
        command_event_id=event.event_id,
        reason=refusal.reason,
        detail=refusal.detail,
        errors=(error,) if refusal.field else (),
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    instruments.REQUESTS.labels(str(refusal.reason)).inc()
    log.info("job request rejected", job_id=job_id, reason=str(refusal.reason))


def _is_same(known: JobRow, payload: JobSubmit) -> bool:
    # A trial has nothing that Python and its reader compare differently.
    return known.trial == payload.trial and (
        canonical_json(known.spec) == canonical_json(payload.spec)
    )


def _conflict(known: JobRow) -> Refusal:
    detail = (
        f"request_id {known.request_id!r} was used with another payload "
        f"by the event {known.command_event_id}"
    )
    fix = "take a new request_id, or send the first payload again"
    return Refusal(RejectionReason.ID_CONFLICT, detail, "request_id", fix)


def _wrong_job_id(job_id: str) -> Refusal:
    detail = "job_id does not follow from tenant and request_id"
    return Refusal(
        RejectionReason.INVALID_SPEC, detail, "job_id", f"leave it out, or write {job_id}"
    )


def _valid(adapter: TypeAdapter[str], data: Any, name: str) -> str | None:
    if not isinstance(data, dict):
        return None
    try:
        return adapter.validate_python(data.get(name))
    except ValidationError:
        return None
