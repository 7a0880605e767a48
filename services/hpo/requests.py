"""Requests for studies: accepted once, or refused with the fields and their fixes."""

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.base import canonical_json
from drivetrain_schemas.envelope import Event, InvalidPayload
from drivetrain_schemas.ids import RequestId, study_id_for
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.studies import (
    StudyImport,
    StudyRequestRejected,
    StudySpec,
    StudyStarted,
    StudySubmit,
)
from drivetrain_schemas.trials import FinishedTrial
from services.hpo import instruments, messages, saved, spaces, spending, store
from services.hpo.core import inputs
from services.hpo.core.samplers import num_points
from services.hpo.core.status import Status
from services.hpo.work import Study, Work
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)
Reason = Literal["invalid_spec", "id_conflict", "too_large"]


async def on_study_submit(work: Work, event: Event[StudySubmit]) -> None:
    await _start(work, event, ())


async def on_study_import(work: Work, event: Event[StudyImport]) -> None:
    await _start(work, event, event.payload.trials)


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
        detail=invalid.detail[: messages.MAX_DETAIL],
        errors=invalid.errors,
    )
    await tx.emit(rejected, tenant_id=attributes.tenant_id)
    _note_rejection(tx, rejected)
    return True


async def _start(
    work: Work, event: Event[StudySubmit] | Event[StudyImport], imported: Sequence[FinishedTrial]
) -> None:
    command = event.payload
    spec = command.spec
    study_id = study_id_for(event.tenant_id, command.request_id)
    if (refusal := _refusal(command, study_id, imported)) is not None:
        await _reject(work.tx, event, *refusal)
        return
    warm_start, errors = await _warm_start(work, event.tenant_id, spec)
    if errors:
        await _reject(work.tx, event, "invalid_spec", errors[0].message, errors)
        return
    status = Status(numbers=messages.to_numbers(spec))
    row = store.StudyRow(
        study_id=study_id,
        tenant_id=event.tenant_id,
        request_id=command.request_id,
        num_trials=num_points(spec.sampler.value, spaces.to_space(spec), spec.max_trials),
        status=saved.dump_status(status),
    )
    asked = store.Asked(canonical_json(spec), json.dumps(warm_start))
    started_at = await store.insert_study(work.tx.connection, row, asked)
    if started_at is None:
        await _on_repeated_request(work, event, study_id)
        return
    await spending.watch(work.tx.connection, study_id, status.numbers.limits)
    started = StudyStarted(
        study_id=study_id,
        request_id=command.request_id,
        spec=spec,
        num_trials=row.num_trials,
        started_at=started_at,
    )
    await work.tx.emit(started, tenant_id=event.tenant_id, cause=event)
    _count_request(work.tx, "started")
    log.info("study started", study_id=study_id, tenant_id=event.tenant_id)
    begin = messages.to_import(spec, imported) if imported else inputs.Begin()
    study = work.add(row)
    await work.tell(study, begin, event)
    await _tell_early_ends(work, study, event)


async def _tell_early_ends(
    work: Work, study: Study, event: Event[StudySubmit] | Event[StudyImport]
) -> None:
    """Ends of jobs that were read before their study, until none is of a trial that runs."""
    waiting = await store.early_ends(work.tx.connection, study.study_id)
    while waiting and not study.is_finished:
        known = [end for end in waiting if end.number in study.search.opened]
        if not known:
            return
        for end in known:
            await work.tell(study, messages.to_ended(end, study.spec), event)
        waiting = [end for end in waiting if end not in known]


def _refusal(
    command: StudySubmit | StudyImport, study_id: str, imported: Sequence[FinishedTrial]
) -> tuple[Reason, str, tuple[FieldError, ...]] | None:
    if command.study_id not in (None, study_id):
        wrong = FieldError(
            field="study_id",
            message=f"the id that follows from tenant and request_id is {study_id}",
            fix="leave it out",
        )
        return "invalid_spec", wrong.message, (wrong,)
    if messages.is_too_large(command):
        return "too_large", "the study is too large to be carried by events", ()
    if errors := messages.errors_of_trials(command.spec):
        return "invalid_spec", "the jobs of its trials would not be valid", errors
    errors = messages.errors_of_search(command.spec)
    errors = errors or messages.errors_of_imported(command.spec, imported)
    return ("invalid_spec", errors[0].message, errors) if errors else None


async def _warm_start(
    work: Work, tenant_id: str, spec: StudySpec
) -> tuple[list[tuple[str, int]], tuple[FieldError, ...]]:
    """The earlier studies, and how many of their trials count; or what is wrong with one."""
    found: list[tuple[str, int]] = []
    if spec.warm_start:
        await work.write()
    for place, study_id in enumerate(spec.warm_start):
        earlier = await store.get_study(work.tx.connection, study_id)
        known = await store.asked(work.tx.connection, study_id)
        if earlier is None or known is None or earlier.tenant_id != tenant_id:
            problem, fix = f"there is no study {study_id}", "name a study of this tenant"
        elif not earlier.is_finished:
            problem, fix = f"{study_id} has not ended", "wait for its end, or stop it"
        elif unlike := messages.error_of_earlier(spec, messages.read_spec(known.spec)):
            problem, fix = unlike
        else:
            found.append((study_id, earlier.num_trials))
            continue
        return [], (FieldError(field=f"warm_start.{place}", message=problem, fix=fix),)
    return found, ()


async def _on_repeated_request(
    work: Work, event: Event[StudySubmit] | Event[StudyImport], study_id: str
) -> None:
    """The same request again is the same study; another one under its id is refused."""
    known = await store.asked(work.tx.connection, study_id)
    assert known is not None
    if canonical_json(messages.read_spec(known.spec)) == canonical_json(event.payload.spec):
        _count_request(work.tx, "repeated")
        return
    detail = f"the request id {event.payload.request_id} belongs to another study"
    await _reject(work.tx, event, "id_conflict", detail, ())


async def _reject(
    tx: Tx,
    event: Event[StudySubmit] | Event[StudyImport],
    reason: Reason,
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


def _note_rejection(tx: Tx, rejected: StudyRequestRejected) -> None:
    _count_request(tx, rejected.reason)
    log.info("study request rejected", study_id=rejected.study_id, reason=rejected.reason)


def _count_request(tx: Tx, answer: str) -> None:
    tx.after_commit(instruments.STUDY_REQUESTS.labels(answer).inc)
