"""Routes that change a study: pause, resume, stop, change, import; and what one would use."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import Field

from drivetrain_schemas.base import Strict
from drivetrain_schemas.ids import RequestId, StudyId, study_id_for
from drivetrain_schemas.studies import (
    StudyChange,
    StudyPause,
    StudyResume,
    StudySpec,
    StudyStop,
)
from drivetrain_schemas.study_specs import Limits, NumParallelTrials, NumTrials
from drivetrain_schemas.trials import FinishedTrial
from services.gateway import commands, queries, study_commands
from services.gateway.commands import Row, read
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.problem import invalid, not_found
from services.gateway.rest import models
from services.gateway.rest.hidden import refuse_hidden
from services.gateway.rest.jobs import CancelJob, IdempotencyKey
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url, chosen_request_id
from services.gateway.rest.studies import find_study

router = APIRouter(prefix="/v1/studies", tags=["studies"])

_REFUSALS = answers(400, 404, 409, 413, 415, 422)


class PauseStudy(Strict):
    """Why, and what its running trials do: go on to their end, or pause with a checkpoint."""

    reason: Annotated[str, Field(max_length=512)] = ""
    trials: Literal["finish", "pause"] = "finish"


class ChangeStudy(Strict):
    """What is left out stays. `limits` replaces all of them, `changed_limits` those given."""

    max_trials: NumTrials | None = None
    max_parallel_trials: NumParallelTrials | None = None
    limits: Limits | None = None
    changed_limits: Limits | None = None


class ImportStudy(Strict):
    """A study whose first trials ended elsewhere. The same request_id again is the same study."""

    request_id: RequestId | None = None
    spec: StudySpec
    trials: Annotated[list[FinishedTrial], Field(min_length=1, max_length=1000)]


class PreviewStudy(Strict):
    """A study that is not submitted yet."""

    spec: StudySpec


@router.post("/{study_id}/pause", status_code=202, responses=_REFUSALS)
async def pause(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    body: PauseStudy | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Start no further trials until it is resumed."""
    wanted = body or PauseStudy()
    command = StudyPause(study_id=study_id, reason=wanted.reason, trials=wanted.trials)
    return await _change(gateway, caller, command, idempotency_key)


@router.post("/{study_id}/resume", status_code=202, responses=_REFUSALS)
async def resume(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Go on with a paused study."""
    return await _change(gateway, caller, StudyResume(study_id=study_id), idempotency_key)


@router.post("/{study_id}/stop", status_code=202, responses=_REFUSALS)
async def stop(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    body: CancelJob | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """End the study now with what it has found; its running trials are stopped."""
    command = StudyStop(study_id=study_id, reason=body.reason if body else "")
    return await _change(gateway, caller, command, idempotency_key)


@router.post("/{study_id}/change", status_code=202, responses=_REFUSALS)
async def change(
    study_id: StudyId,
    body: ChangeStudy,
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Change its numbers of trials or its limits. A completed study may go on by it."""
    given = {name: getattr(body, name) for name in ChangeStudy.model_fields}
    if all(value is None for value in given.values()):
        raise invalid("(whole)", "it changes nothing", f"give one of {', '.join(given)}")
    return await _change(gateway, caller, StudyChange(study_id=study_id, **given), idempotency_key)


@router.post(
    "/import",
    status_code=201,
    response_model=models.Study,
    responses={
        200: {"model": models.Study, "description": "The same request was accepted before"},
        202: {"model": models.Study, "description": "Sent; not answered yet"},
        **answers(400, 409, 413, 415, 422),
    },
)
async def import_study(
    body: ImportStudy,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> models.Study:
    """Start a study that knows trials from elsewhere, and wait up to two seconds for the answer."""
    request_id = chosen_request_id(body.request_id, idempotency_key)
    tenant_id = caller.tenant_id
    refuse_hidden(body.spec)
    response.status_code, _ = await commands.submit_study(
        gateway, tenant_id, request_id, body.spec, body.trials
    )
    study_id = study_id_for(tenant_id, request_id)
    response.headers["Location"] = f"/v1/studies/{study_id}"
    return await find_study(gateway, tenant_id, study_id, base_url(request))


@router.post("/preview", response_model=models.Preview, responses=answers(400, 413, 415, 422))
async def preview(body: PreviewStudy, gateway: GatewayDep, caller: CallerDep) -> Any:
    """What a study would use, before it starts; nothing is started."""
    spec = body.spec.model_dump(mode="json", exclude_none=True)
    path = f"/preview?tenant_id={quote(caller.tenant_id, safe='')}"
    return await gateway.backends.ask("hpo", path, spec)


async def _change(
    gateway: Gateway, caller: Caller, command: study_commands.StudyCommand, key: str | None
) -> models.Accepted:
    study = await known_study(gateway, caller, command.study_id)
    is_confirmed = await study_commands.change_study(gateway, caller.tenant_id, study, command, key)
    return models.Accepted(is_confirmed=is_confirmed)


async def known_study(gateway: Gateway, caller: Caller, study_id: str) -> Row:
    """Raises Problem (404) where the caller has no such study."""
    study: Row | None = await read(gateway, queries.studies.find, caller.tenant_id, study_id)
    if study is None:
        raise not_found("study", study_id)
    return study
