"""Commands: written to Kafka, then watched until the service that decides has answered.

In: a checked request. Out: its answer within two seconds, by the read model: accepted, refused, or
not confirmed yet. The event id of a submission follows from the request, so a retry of it is the
same event; other commands are one event per request (or per Idempotency-Key).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from drivetrain_schemas.base import Payload, canonical_json
from drivetrain_schemas.checkpoints import CheckpointPin
from drivetrain_schemas.envelope import MAX_EVENT_BYTES, Event, encode
from drivetrain_schemas.ids import digest_id, job_id_for, study_id_for
from drivetrain_schemas.jobs import FieldError, JobCancel, JobSpec, JobSubmit
from drivetrain_schemas.studies import StudyCancel, StudyImport, StudySpec, StudySubmit
from drivetrain_schemas.trials import FinishedTrial
from services.gateway import queries, stored_code
from services.gateway.context import Gateway, Submission
from services.gateway.instruments import COMMANDS
from services.gateway.problem import Problem
from services.runtime import tracing
from services.runtime.bus import OutRecord, PublishFailed

SOURCE = "/drivetrain/gateway"
SEND_SECONDS = 5.0
CONFIRM_SECONDS = 2.0
POLL_SECONDS = 0.25

# The field that a reason is about, where the refusal names none.
_FIELDS = {
    "id_conflict": ("request_id", "use another request_id, or send the same spec"),
    "no_such_pool": ("spec.resources.pool", "name a pool of GET /v1/nodes"),
    "more_devices_than_pool": ("spec.resources.devices", "ask for at most what the pool has"),
}

Row = dict[str, Any]
T = TypeVar("T")


async def submit_job(
    gateway: Gateway, tenant_id: str, request_id: str, spec: JobSpec
) -> tuple[int, Row | None]:
    """(201, job), (200, job) where it was accepted before, or (202, None) without an answer.

    Raises Problem where it was refused.
    """
    job_id = job_id_for(tenant_id, request_id)
    known = await read(gateway, queries.jobs.find, tenant_id, job_id)
    if _is_accepted(known, spec):
        return 200, known
    event_id = _event_id("job.submit", tenant_id, request_id, spec)
    command = JobSubmit(request_id=request_id, spec=spec, job_id=job_id)
    if spec.code:
        await read(gateway, stored_code.keep, tenant_id, spec.code.sha256)
    record = as_record(gateway, tenant_id, event_id, command)
    now = gateway.platform.clock.now()
    gateway.submissions.remember(Submission(tenant_id, job_id, request_id, spec, now))
    await publish(gateway, [record])

    async def answer() -> Row | None:
        await raise_refusal(gateway, event_id, job_id)
        job = await read(gateway, queries.jobs.find, tenant_id, job_id)
        return job if _is_accepted(job, spec) else None

    job = await confirmed(gateway, command, answer)
    return (201, job) if job is not None else (202, None)


async def submit_study(
    gateway: Gateway,
    tenant_id: str,
    request_id: str,
    spec: StudySpec,
    trials: Sequence[FinishedTrial] = (),
) -> tuple[int, Row | None]:
    """As `submit_job`, for a study; `trials` ended elsewhere and are its first ones."""
    study_id = study_id_for(tenant_id, request_id)
    known = await read(gateway, queries.studies.find, tenant_id, study_id)
    if _is_accepted(known, spec):
        return 200, known
    if spec.job.code:
        await read(gateway, stored_code.keep, tenant_id, spec.job.code.sha256)
    about = {"request_id": request_id, "spec": spec, "study_id": study_id}
    command: Payload = StudySubmit.model_validate(about)
    if trials:
        command = StudyImport.model_validate({**about, "trials": tuple(trials)})
    event_id = _event_id(command.kind.type, tenant_id, request_id, spec)
    record = as_record(gateway, tenant_id, event_id, command)
    now = gateway.platform.clock.now()
    gateway.submissions.remember(Submission(tenant_id, study_id, request_id, spec, now))
    await publish(gateway, [record])

    async def answer() -> Row | None:
        await raise_refusal(gateway, event_id, study_id)
        study = await read(gateway, queries.studies.find, tenant_id, study_id)
        return study if _is_accepted(study, spec) else None

    study = await confirmed(gateway, command, answer)
    return (201, study) if study is not None else (202, None)


async def cancel_job(
    gateway: Gateway, tenant_id: str, job_id: str, reason: str, key: str | None
) -> bool:
    """True once the scheduler has accepted it; False without an answer yet. Raises Problem."""
    event_id = event_id_of_key("job.cancel", tenant_id, job_id, key)
    command = JobCancel(job_id=job_id, reason=reason)
    await publish(gateway, [as_record(gateway, tenant_id, event_id, command)])

    async def answer() -> bool | None:
        await raise_refusal(gateway, event_id, job_id)
        job = await read(gateway, queries.jobs.find, tenant_id, job_id)
        is_accepted = job is not None and (job["is_cancelling"] or job["state"] == "cancelled")
        return True if is_accepted else None

    return bool(await confirmed(gateway, command, answer))


async def cancel_study(
    gateway: Gateway, tenant_id: str, study_id: str, reason: str, key: str | None
) -> bool:
    """True once the search has accepted it; False without an answer yet. Raises Problem."""
    event_id = event_id_of_key("study.cancel", tenant_id, study_id, key)
    command = StudyCancel(study_id=study_id, reason=reason)

    async def found() -> bool | None:
        study = await read(gateway, queries.studies.find, tenant_id, study_id)
        return True if study is not None and study["cancel_requested"] else None

    return bool(await carry_out(gateway, tenant_id, event_id, command, found))


async def pin_checkpoint(
    gateway: Gateway, tenant_id: str, checkpoint: Row, key: str | None
) -> bool:
    """True once it is pinned; False without an answer yet. Raises Problem where it was refused."""
    checkpoint_id = checkpoint["checkpoint_id"]
    event_id = event_id_of_key("checkpoint.pin", tenant_id, checkpoint_id, key)
    command = CheckpointPin(job_id=checkpoint["job_id"], checkpoint_id=checkpoint_id)
    await publish(gateway, [as_record(gateway, tenant_id, event_id, command)])

    async def answer() -> bool | None:
        await raise_refusal(gateway, event_id, checkpoint_id)
        found = await read(gateway, queries.checkpoints.find, tenant_id, checkpoint_id)
        return True if found is not None and found["is_pinned"] else None

    return bool(await confirmed(gateway, command, answer))


def as_record(
    gateway: Gateway, tenant_id: str, event_id: str, payload: Payload, seq: int | None = None
) -> OutRecord:
    """What is sent. Raises Problem where it is too large."""
    event = Event(
        event_id=event_id,
        source=SOURCE,
        occurred_at=gateway.platform.clock.now(),
        tenant_id=tenant_id,
        payload=payload,
        seq=seq,
        correlation_id=event_id,
        traceparent=tracing.sent(payload.kind.type),
        subject=payload.key,
    )
    headers, key, value = encode(event)
    if len(value) > MAX_EVENT_BYTES:
        message = f"the spec is {len(value):,} bytes as an event (at most {MAX_EVENT_BYTES:,})"
        fix = "upload large content with POST /v1/code and name it in the spec"
        error = FieldError(field="spec", message=message, fix=fix)
        raise Problem(413, "too_large", message, (error,))
    topic = gateway.settings.topic_prefix + payload.kind.topic.name
    return OutRecord(topic, key, value, tuple(headers))


async def carry_out(
    gateway: Gateway,
    tenant_id: str,
    event_id: str,
    command: Payload,
    found: Callable[[], Awaitable[T | None]],
) -> T | None:
    """Send a command about a study or trial; what `found` then finds, None without an answer.

    Raises Problem where it was refused.
    """
    await publish(gateway, [as_record(gateway, tenant_id, event_id, command)])

    async def answer() -> T | None:
        await raise_refusal(gateway, event_id, command.key)
        return await found()

    return await confirmed(gateway, command, answer)


async def publish(gateway: Gateway, records: Sequence[OutRecord]) -> None:
    """Returns once Kafka has acknowledged all. Raises PublishFailed, at the latest in 5 s."""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await gateway.platform.publisher.publish(records)
    except TimeoutError as error:
        raise PublishFailed((), f"no acknowledgement within {SEND_SECONDS:g} s") from error


async def confirmed(
    gateway: Gateway, payload: Payload, find: Callable[[], Awaitable[T | None]]
) -> T | None:
    """What `find` finds within the limit; called again whenever the read model changes."""
    clock = gateway.platform.clock
    until = clock.monotonic() + CONFIRM_SECONDS
    try:
        while True:
            found = await find()
            left = until - clock.monotonic()
            if found is not None or left <= 0:
                answer = "unknown" if found is None else "accepted"
                COMMANDS.labels(payload.kind.type, answer).inc()
                return found
            await gateway.live.moved(min(left, POLL_SECONDS))
    except Problem:
        COMMANDS.labels(payload.kind.type, "refused").inc()
        raise


async def raise_refusal(gateway: Gateway, event_id: str, subject_id: str) -> None:
    refusal = await read(gateway, queries.rejections.find, event_id, subject_id)
    if refusal is None:
        return
    statuses = {
        "id_conflict": 409,
        "already_finished": 409,
        "not_external": 409,
        "not_paused": 409,
        "too_many_running": 409,
        "no_further_point": 409,
        "no_such_job": 404,
        "no_such_study": 404,
        "no_such_trial": 404,
        "no_such_checkpoint": 404,
        "no_such_budget": 404,
        "no_such_silence": 404,
        "too_large": 413,
    }
    errors = tuple(FieldError.model_validate(error) for error in refusal["errors"])
    if not errors and refusal["reason"] in _FIELDS:
        field, fix = _FIELDS[refusal["reason"]]
        errors = (FieldError(field=field, message=refusal["detail"], fix=fix),)
    status = statuses.get(refusal["reason"], 422)
    raise Problem(status, refusal["reason"], refusal["detail"], errors)


async def read(gateway: Gateway, query: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    async with gateway.platform.database.connection() as connection:
        return await query(connection, *arguments)


def _is_accepted(subject: Row | None, spec: JobSpec | StudySpec) -> bool:
    return subject is not None and bool(subject["accepted_spec"] == canonical_json(spec))


def _event_id(command: str, tenant_id: str, request_id: str, spec: JobSpec | StudySpec) -> str:
    return f"cmd_{digest_id(command, tenant_id, request_id, canonical_json(spec))}"


def event_id_of_key(command: str, tenant_id: str, subject_id: str, key: str | None) -> str:
    if key is None:
        return f"cmd_{uuid.uuid4().hex}"
    return f"cmd_{digest_id(command, tenant_id, subject_id, key)}"
