"""Routes about studies."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from drivetrain_schemas.base import Strict
from drivetrain_schemas.ids import RequestId, StudyId, study_id_for
from drivetrain_schemas.studies import StudySpec
from services.gateway import commands, queries
from services.gateway.commands import read
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core.studies import STATES
from services.gateway.problem import invalid, not_found
from services.gateway.rest import models, views
from services.gateway.rest.hidden import refuse_hidden
from services.gateway.rest.jobs import CancelJob, IdempotencyKey, Limit
from services.gateway.rest.positions import position_text, read_position
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url, chosen_request_id
from services.gateway.study_insight import find_insight

router = APIRouter(prefix="/v1/studies", tags=["studies"])

MAX_TRIALS = 10_000


class SubmitStudy(Strict):
    """The same request_id again is the same study."""

    request_id: RequestId | None = None
    spec: StudySpec


@router.post(
    "",
    status_code=201,
    response_model=models.Study,
    responses={
        200: {"model": models.Study, "description": "The same request was accepted before"},
        202: {"model": models.Study, "description": "Sent; not answered yet"},
        **answers(400, 409, 413, 415, 422),
    },
)
async def submit(
    body: SubmitStudy,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> models.Study:
    """Start a study, and wait up to two seconds for the answer."""
    request_id = chosen_request_id(body.request_id, idempotency_key)
    refuse_hidden(body.spec)
    status, _ = await commands.submit_study(gateway, caller.tenant_id, request_id, body.spec)
    response.status_code = status
    study_id = study_id_for(caller.tenant_id, request_id)
    response.headers["Location"] = f"/v1/studies/{study_id}"
    return await find_study(gateway, caller.tenant_id, study_id, base_url(request))


@router.get("", responses=answers(422))
async def list_studies(
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    state: str | None = None,
    name: Annotated[str | None, Query(max_length=63)] = None,
    limit: Limit = 50,
    after: Annotated[str | None, Query(max_length=512)] = None,
) -> models.StudyList:
    """Newest first; only those in this state, and with exactly this name."""
    if state is not None and state not in STATES:
        raise invalid("state", f"there is no state {state[:40]!r}", f"one of {', '.join(STATES)}")
    position = read_position(after, 2)
    async with gateway.platform.database.connection() as connection:
        rows = await queries.studies.page(
            connection,
            caller.tenant_id,
            (position[0], position[1][0]) if position else None,
            limit + 1,
            state=state,
            name=name,
        )
    more = None
    if len(rows) > limit:
        more = position_text(rows[limit - 1]["listed_at"], rows[limit - 1]["study_id"])
    return models.StudyList(
        studies=[views.study_summary(row, base_url(request)) for row in rows[:limit]], next=more
    )


@router.get("/{study_id}", responses=answers(404, 422))
async def get_study(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    max_trials: Annotated[int, Query(ge=1, le=MAX_TRIALS)] = MAX_TRIALS,
) -> models.Study:
    """The study with its trials, ranked: the best `max_trials` of them."""
    return await find_study(gateway, caller.tenant_id, study_id, base_url(request), max_trials)


@router.get("/{study_id}/trials", responses=answers(404, 422))
async def list_trials(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    limit: Limit = 50,
    after: Annotated[int, Query(ge=-1, le=2**31)] = -1,
) -> models.TrialList:
    """All trials by number, with what was decided at each rung; those after a number."""
    await find_study(gateway, caller.tenant_id, study_id, base_url(request), 1)
    async with gateway.platform.database.connection() as connection:
        rows = await queries.studies.trials_by_number(connection, study_id, after, limit + 1)
    more = str(rows[limit - 1]["number"]) if len(rows) > limit else None
    return models.TrialList(trials=[views.judged_trial(row) for row in rows[:limit]], next=more)


@router.get("/{study_id}/insight", responses=answers(404, 422))
async def get_insight(study_id: StudyId, gateway: GatewayDep, caller: CallerDep) -> models.Insight:
    """Rungs, importance, the Pareto front, and what the search does next and why."""
    study = await read(gateway, queries.studies.find, caller.tenant_id, study_id)
    if study is None:
        raise not_found("study", study_id)
    return (await find_insight(gateway, study)).insight


@router.post("/{study_id}/cancel", status_code=202, responses=answers(400, 404, 409, 413, 415, 422))
async def cancel(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    body: CancelJob | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Cancel the study and the jobs of its running trials. Refused (409) once it has ended."""
    await find_study(gateway, caller.tenant_id, study_id, base_url(request))
    is_confirmed = await commands.cancel_study(
        gateway, caller.tenant_id, study_id, body.reason if body else "", idempotency_key
    )
    return models.Accepted(is_confirmed=is_confirmed)


async def find_study(
    gateway: Gateway, tenant_id: str, study_id: str, base: str, max_trials: int | None = None
) -> models.Study:
    """The study with its best trials, or what is known of a request that was just sent.

    Raises Problem (404).
    """
    async with gateway.platform.database.connection() as connection:
        row = await queries.studies.find(connection, tenant_id, study_id)
        if row is not None:
            trials = await queries.studies.trials(
                connection, study_id, max_trials or MAX_TRIALS, is_maximized=views.is_maximized(row)
            )
            return views.study(row, trials, base)
    submission = gateway.submissions.get(tenant_id, study_id)
    if submission is None:
        raise not_found("study", study_id)
    return views.submitted_study(submission, base)
