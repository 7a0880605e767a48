"""Routes for trials that run elsewhere: ask for one, report values, complete it.

The search is the same as for trials that are jobs; whoever asks carries them out.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Strict
from drivetrain_schemas.ids import RequestId, StudyId
from drivetrain_schemas.specs import Count, Real
from drivetrain_schemas.text import free_text
from drivetrain_schemas.trials import TrialReport, TrialTell, Values
from services.gateway import queries, study_commands
from services.gateway.commands import Row, read
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.problem import Problem, not_found
from services.gateway.rest import models, views
from services.gateway.rest.jobs import IdempotencyKey
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import chosen_request_id
from services.gateway.rest.study_commands import known_study

router = APIRouter(prefix="/v1/studies", tags=["trials that run elsewhere"])

Number = Annotated[int, Path(ge=0, le=1_000_000)]
_REFUSALS = answers(400, 404, 409, 413, 415, 422)


class AskTrial(Strict):
    """The same request_id again is the same trial."""

    request_id: RequestId | None = None


class ReportValue(Strict):
    """The study's metric at a step; without `value` none was measured, or it is no number."""

    step: Annotated[Count, Field(ge=0, le=2**53)]
    value: Real | None = None


class CompleteTrial(Strict):
    """How it ended: with `values` of all objectives, `is_stopped`, or without both: it failed."""

    values: Values | None = None
    safety: Real | None = None
    is_stopped: Annotated[bool, Field(strict=True)] = False
    detail: Annotated[str, free_text(1024)] = ""

    @model_validator(mode="after")
    def _has_one_end(self) -> "CompleteTrial":
        if self.is_stopped and self.values is not None:
            fix = "leave it out, or write is_stopped: false"
            raise Misfit("belongs to a trial that went to its end", fix=fix, field="values")
        return self


@router.post(
    "/{study_id}/suggest",
    status_code=201,
    response_model=models.Suggestion,
    responses={
        200: {"model": models.Suggestion, "description": "The same request was answered before"},
        202: {"model": models.Suggestion, "description": "Sent; ask again with this request_id"},
        **_REFUSALS,
    },
)
async def suggest(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    response: Response,
    body: AskTrial | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Suggestion:
    """The next trial to carry out."""
    request_id = chosen_request_id(body.request_id if body else None, idempotency_key)
    await known_study(gateway, caller, study_id)
    response.status_code, row = await study_commands.suggest(
        gateway, caller.tenant_id, study_id, request_id
    )
    trial = views.judged_trial(row) if row is not None else None
    if trial is not None:
        response.headers["Location"] = f"/v1/studies/{study_id}/trials/{trial.number}"
    return models.Suggestion(request_id=request_id, trial=trial, rungs=_rungs(row))


@router.get("/{study_id}/trials/{number}", responses=answers(404, 422))
async def get_trial(
    study_id: StudyId, number: Number, gateway: GatewayDep, caller: CallerDep
) -> models.JudgedTrial:
    """One trial, with what was decided at each rung."""
    return views.judged_trial(await _known_trial(gateway, caller, study_id, number))


@router.get("/{study_id}/trials/{number}/should-stop", responses=answers(404, 422))
async def should_stop(
    study_id: StudyId, number: Number, gateway: GatewayDep, caller: CallerDep
) -> models.ShouldStop:
    """Whether the trial should end now: it was judged so, has ended, or its study has."""
    study = await known_study(gateway, caller, study_id)
    return _stop_of(study, await _known_trial(gateway, caller, study_id, number))


@router.post(
    "/{study_id}/trials/{number}/report",
    response_model=models.Reported,
    responses={
        202: {"model": models.Reported, "description": "Sent; not judged yet: see should-stop"},
        **_REFUSALS,
    },
)
async def report(
    study_id: StudyId,
    number: Number,
    body: ReportValue,
    gateway: GatewayDep,
    caller: CallerDep,
    response: Response,
) -> models.Reported:
    """The metric at a step. At a rung it waits up to two seconds for the verdict."""
    study = await known_study(gateway, caller, study_id)
    trial = _external(await _known_trial(gateway, caller, study_id, number))
    if trial["state"] in study_commands.ENDED:
        raise Problem(409, "already_finished", f"trial {number} has ended")
    command = TrialReport(study_id=study_id, number=number, step=body.step, value=body.value)
    is_confirmed = await study_commands.report(gateway, caller.tenant_id, trial, command)
    response.status_code = 200 if is_confirmed else 202
    now = await _known_trial(gateway, caller, study_id, number)
    return models.Reported(is_confirmed=is_confirmed, **_stop_of(study, now).model_dump())


@router.post(
    "/{study_id}/trials/{number}/complete",
    response_model=models.JudgedTrial,
    responses={
        202: {"model": models.JudgedTrial, "description": "Sent; not answered yet"},
        **_REFUSALS,
    },
)
async def complete(
    study_id: StudyId,
    number: Number,
    body: CompleteTrial,
    gateway: GatewayDep,
    caller: CallerDep,
    response: Response,
) -> models.JudgedTrial:
    """The trial has ended. The same end again changes nothing."""
    trial = _external(await _known_trial(gateway, caller, study_id, number))
    command = TrialTell(study_id=study_id, number=number, **body.model_dump())
    ended = await study_commands.tell(gateway, caller.tenant_id, trial, command)
    response.status_code = 202 if ended is None else 200
    return views.judged_trial(ended or trial)


async def _known_trial(gateway: Gateway, caller: Caller, study_id: str, number: int) -> Row:
    await known_study(gateway, caller, study_id)
    trial: Row | None = await read(gateway, queries.studies.find_trial, study_id, number)
    if trial is None:
        raise not_found("trial", f"{number} of {study_id}")
    return trial


def _external(trial: Row) -> Row:
    if not trial["is_external"]:
        detail = f"trial {trial['number']} is a job, which reports by itself: {trial['job_id']}"
        raise Problem(409, "not_external", detail)
    return trial


def _rungs(trial: Row | None) -> list[int]:
    return list(trial["rungs"] or ()) if trial is not None else []


def _stop_of(study: Row, trial: Row) -> models.ShouldStop:
    """A trial outside holds nothing that could be paused, so a pause is a stop."""
    judged = trial["judged"][-1] if trial["judged"] else None
    reason = ""
    if study["state"] in ("stopping", "completed", "failed", "cancelled"):
        reason = "the study has ended"
    elif trial["state"] in (*study_commands.ENDED, "stopping"):
        reason = trial["detail"] or "the trial has ended"
    elif judged is not None and judged["verdict"] != "continue":
        reason = judged["reason"]
    return models.ShouldStop(
        should_stop=bool(reason),
        reason=reason,
        rung=trial["rung"],
        threshold=trial["threshold"],
    )
