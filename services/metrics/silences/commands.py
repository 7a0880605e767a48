"""Commands about silences, and the project of each job, by which some silences choose."""

from functools import partial

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.annotations import JobAnnotated
from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, InvalidPayload
from drivetrain_schemas.ids import SilenceId, TenantId
from drivetrain_schemas.jobs import FieldError, JobQueued
from drivetrain_schemas.silences import (
    MAX_SILENCE,
    MAX_SILENCES,
    SilenceChanged,
    SilenceEnd,
    SilenceEnded,
    SilenceRequestRejected,
    SilenceSet,
    silence_id_for,
)
from services.metrics import store_watched
from services.metrics.core.silences import Limits, Refused, refusal
from services.metrics.core.watched import watched
from services.metrics.instruments import SILENCE_REQUESTS
from services.metrics.rungs import JobFinished
from services.metrics.silences import store
from services.metrics.silences.store import SilenceRow
from services.runtime import logs
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx

log = logs.get()

LIMITS = Limits(MAX_SILENCES, MAX_SILENCE)
_TENANT: TypeAdapter[str] = TypeAdapter(TenantId)
_SILENCE: TypeAdapter[str] = TypeAdapter(SilenceId)


async def on_set(tx: Tx, event: Event[SilenceSet]) -> None:
    """Make or change a silence. One that is over begins again."""
    tenant_id, spec = event.tenant_id, event.payload.spec
    silence_id = silence_id_for(tenant_id, spec)
    if await _is_foreign(tx, event, event.payload.tenant_id, silence_id):
        return
    now = await store.now(tx.connection)
    known = await store.lock(tx.connection, tenant_id, silence_id)
    before = known if known is not None and known.spec.ends_at > now else None
    if before is not None and before.spec == spec:
        _count(tx, "repeated")
        return
    others = await store.num_in_force(tx.connection, tenant_id, silence_id)
    if refused := refusal(spec.ends_at, now, others, LIMITS):
        await _reject(tx, event, silence_id, refused)
        return
    created_at = before.created_at if before is not None else now
    row = SilenceRow(silence_id, tenant_id, spec, created_at)
    await store.put(tx.connection, row)
    await store.look_again(tx.connection, tenant_id)
    changed = SilenceChanged(
        tenant_id=tenant_id,
        silence_id=silence_id,
        spec=spec,
        command_event_id=event.event_id,
        created_at=created_at,
    )
    await tx.emit(changed, tenant_id=tenant_id, cause=event)
    _count(tx, "set")
    tx.after_commit(partial(log.info, "silence set", **_facts(row)))


async def on_end(tx: Tx, event: Event[SilenceEnd]) -> None:
    """End a silence now: what it holds back is sent, as far as its alerts are still open."""
    tenant_id, silence_id = event.tenant_id, event.payload.silence_id
    if await _is_foreign(tx, event, event.payload.tenant_id, silence_id):
        return
    now = await store.now(tx.connection)
    row = await store.lock(tx.connection, tenant_id, silence_id)
    if row is None or row.spec.ends_at <= now:
        rejected = SilenceRequestRejected(
            tenant_id=tenant_id,
            silence_id=silence_id,
            command_event_id=event.event_id,
            reason="no_such_silence",
            detail=f"there is no silence {silence_id}, or it is over",
        )
        await tx.emit(rejected, tenant_id=tenant_id, cause=event)
        _count(tx, rejected.reason)
        return
    await store.delete(tx.connection, silence_id)
    await store.look_again(tx.connection, tenant_id)
    ended = SilenceEnded(tenant_id=tenant_id, silence_id=silence_id, spec=row.spec, ended_at=now)
    await tx.emit(ended, tenant_id=tenant_id, cause=event)
    _count(tx, "ended")
    tx.after_commit(partial(log.info, "silence ended", **_facts(row)))


async def on_job_queued(tx: Tx, event: Event[JobQueued]) -> None:
    queued = event.payload
    await store_watched.insert(
        tx.connection, queued.job_id, queued.spec.project, watched(queued.spec)
    )


async def on_job_annotated(tx: Tx, event: Event[JobAnnotated]) -> None:
    await store_watched.change_project(tx.connection, event.payload.job_id, event.payload.project)


async def on_job_finished(tx: Tx, event: Event[JobFinished]) -> None:
    await store_watched.set_finished(tx.connection, event.payload.job_id)


async def refuse_invalid(tx: Tx, invalid: InvalidPayload) -> bool:
    """Answer a request that is not valid; its record's key is the tenant's, so it has an answer."""
    attributes = invalid.attributes
    data = invalid.data if isinstance(invalid.data, dict) else {}
    try:
        _TENANT.validate_python(attributes.tenant_id)
        silence_id = _SILENCE.validate_python(data.get("silence_id"))
    except ValidationError:
        silence_id = None
    rejected = SilenceRequestRejected(
        tenant_id=attributes.tenant_id,
        silence_id=silence_id,
        command_event_id=attributes.event_id,
        reason="invalid_spec",
        detail=invalid.detail[:1000],
        errors=invalid.errors,
    )
    await tx.emit(rejected, tenant_id=attributes.tenant_id)
    _count(tx, rejected.reason)
    return True


HANDLERS: HandlerTable = {SilenceSet: on_set, SilenceEnd: on_end, JobAnnotated: on_job_annotated}
REFUSALS: RefusalTable = {SilenceSet: refuse_invalid, SilenceEnd: refuse_invalid}


async def _is_foreign(tx: Tx, event: Event[Payload], tenant_id: str, silence_id: str) -> bool:
    """Refuse a command about another tenant's alerts."""
    if tenant_id == event.tenant_id:
        return False
    detail = f"the request is of tenant {event.tenant_id}"
    rejected = SilenceRequestRejected(
        tenant_id=event.tenant_id,
        silence_id=silence_id,
        command_event_id=event.event_id,
        reason="wrong_tenant",
        detail=detail,
        errors=(FieldError(field="tenant_id", message=detail, fix="name your own tenant"),),
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    _count(tx, rejected.reason)
    return True


async def _reject(tx: Tx, event: Event[Payload], silence_id: str, refused: Refused) -> None:
    error = FieldError(field=refused.field, message=refused.detail, fix=refused.fix)
    rejected = SilenceRequestRejected(
        tenant_id=event.tenant_id,
        silence_id=silence_id,
        command_event_id=event.event_id,
        reason=refused.reason,
        detail=refused.detail,
        errors=(error,),
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    _count(tx, refused.reason)


def _facts(row: SilenceRow) -> dict[str, object]:
    spec = row.spec.model_dump(mode="json", include={"alert", "job_id", "project", "ends_at"})
    return {"tenant_id": row.tenant_id, "silence_id": row.silence_id, **spec}


def _count(tx: Tx, answer: str) -> None:
    tx.after_commit(SILENCE_REQUESTS.labels(answer).inc)
