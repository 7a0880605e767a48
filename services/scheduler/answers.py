"""Refusals: the answer `job_request.rejected` to a command, which changes no job."""

from typing import Any

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.envelope import Cause, InvalidPayload
from drivetrain_schemas.ids import JobId, RequestId, job_id_for
from drivetrain_schemas.jobs import FieldError, JobRequestRejected, JobSubmit, RejectionReason
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import instruments
from services.scheduler.core.admission import Refusal

log = logs.get()

MAX_DETAIL = 1000
_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)
_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)


async def reject(
    tx: Tx,
    cause: Cause,
    tenant_id: str,
    job_id: str,
    refusal: Refusal,
    request_id: str | None = None,
) -> None:
    """Answer the command `cause`."""
    error = FieldError(field=refusal.field, message=refusal.detail, fix=refusal.fix)
    rejected = JobRequestRejected(
        job_id=job_id,
        request_id=request_id,
        command_event_id=cause.event_id,
        reason=refusal.reason,
        detail=refusal.detail,
        errors=(error,) if refusal.field else (),
    )
    await _emit(tx, rejected, tenant_id, cause)


async def refuse_invalid(tx: Tx, invalid: InvalidPayload) -> bool:
    """Answer a request whose payload is invalid; False when it does not identify its job.

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
    cause = Cause(attributes.event_id, attributes.correlation_id, attributes.traceparent)
    await _emit(tx, rejected, attributes.tenant_id, cause)
    return True


async def _emit(tx: Tx, rejected: JobRequestRejected, tenant_id: str, cause: Cause) -> None:
    await tx.emit(rejected, tenant_id=tenant_id, cause=cause)
    reason = str(rejected.reason)
    tx.after_commit(instruments.REQUESTS.labels(reason).inc)
    log.info("job request rejected", job_id=rejected.job_id, reason=reason)


def _valid(adapter: TypeAdapter[str], data: Any, name: str) -> str | None:
    if not isinstance(data, dict):
        return None
    try:
        return adapter.validate_python(data.get(name))
    except ValidationError:
        return None
