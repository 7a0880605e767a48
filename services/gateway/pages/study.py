"""The page of a study, and its buttons: forms that answer with a redirect."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from drivetrain_schemas.ids import StudyId
from drivetrain_schemas.studies import StudyChange, StudyPause, StudyResume, StudyStop
from drivetrain_schemas.study_specs import MAX_TRIALS
from services.gateway import commands, queries, study_commands
from services.gateway.commands import read
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page, stream_position
from services.gateway.problem import invalid
from services.gateway.rest import models, views
from services.gateway.rest.requests import base_url
from services.gateway.rest.studies import find_study
from services.gateway.rest.study_commands import known_study
from services.gateway.study_insight import Drawing, find_insight, goals_of

router = APIRouter(include_in_schema=False)

TIMELINE_ROWS = 60
# A page of a study has at most 300 kB: the more hyperparameters, the fewer trials.
TRIAL_ROWS = 200
TRIALS_BYTES = 150_000
# The rank, value and number of the last trial of the page before.
_POSITION = re.compile(r"(\d{1,7}):([-+.\dEeinf]{1,32}):(\d{1,7})")


@router.get("/studies/{study_id}")
async def study(
    study_id: StudyId,
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    after: Annotated[str | None, Query(max_length=64)] = None,
) -> HTMLResponse:
    """`after`: where the page of better trials ended."""
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        history = await queries.timeline.newest(connection, "study_id", study_id, TIMELINE_ROWS)
        numbers = await badges(gateway, connection, caller)
    row = await read(gateway, queries.studies.find, caller.tenant_id, study_id)
    found = await find_study(gateway, caller.tenant_id, study_id, base_url(request), TRIAL_ROWS + 1)
    best = next((trial for trial in found.trials if trial.is_best), None)
    fetched = found.trials if after is None else await _further(gateway, row, after)
    row_bytes = 800 + 110 * max((len(one.hyperparameters) for one in fetched), default=0)
    trials = fetched[: min(TRIAL_ROWS, TRIALS_BYTES // row_bytes)]
    drawing = await find_insight(gateway, row) if row is not None else _nothing(study_id)
    return page(
        request,
        "study.html",
        position=stream_position(stream),
        study=found.model_copy(update={"trials": trials}),
        best=best,
        goals=goals_of({"spec": found.spec}),
        insight=drawing.insight,
        data=drawing.data,
        next_trials=_position_after(trials, fetched),
        is_first_page=after is None,
        has_chart=gateway.settings.assets_directory is not None,
        timeline=[views.timeline_item(item) for item in history],
        **numbers,
    )


@router.post("/studies/{study_id}/cancel")
async def cancel(
    study_id: StudyId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    await find_study(gateway, caller.tenant_id, study_id, base_url(request), 1)
    await commands.cancel_study(gateway, caller.tenant_id, study_id, "", None)
    return RedirectResponse(f"/studies/{study_id}", 303)


@router.post("/studies/{study_id}/pause")
async def pause(study_id: StudyId, gateway: GatewayDep, caller: CallerDep) -> Response:
    return await _change(gateway, caller, StudyPause(study_id=study_id))


@router.post("/studies/{study_id}/resume")
async def resume(study_id: StudyId, gateway: GatewayDep, caller: CallerDep) -> Response:
    return await _change(gateway, caller, StudyResume(study_id=study_id))


@router.post("/studies/{study_id}/stop")
async def stop(study_id: StudyId, gateway: GatewayDep, caller: CallerDep) -> Response:
    return await _change(gateway, caller, StudyStop(study_id=study_id))


@router.post("/studies/{study_id}/extend")
async def extend(
    study_id: StudyId,
    gateway: GatewayDep,
    caller: CallerDep,
    max_trials: Annotated[int, Query(ge=1, le=MAX_TRIALS)],
) -> Response:
    """The page's button names the number; others are for the command line and REST."""
    return await _change(gateway, caller, StudyChange(study_id=study_id, max_trials=max_trials))


async def _change(
    gateway: Gateway, caller: Caller, command: study_commands.StudyCommand
) -> Response:
    row = await known_study(gateway, caller, command.study_id)
    await study_commands.change_study(gateway, caller.tenant_id, row, command, None)
    return RedirectResponse(f"/studies/{command.study_id}", 303)


async def _further(gateway: Gateway, row: dict[str, Any] | None, after: str) -> list[models.Trial]:
    """The trials after the page before. Raises Problem (422)."""
    found = _POSITION.fullmatch(after)
    if found is None or row is None:
        raise invalid("after", "it is no position in this list", "open the study's first page")
    try:
        position = float(found[2]), int(found[3])
    except ValueError:
        raise invalid("after", "it is no position in this list") from None
    async with gateway.platform.database.connection() as connection:
        trials = await queries.studies.ranked_trials(
            connection,
            row["study_id"],
            TRIAL_ROWS + 1,
            is_maximized=views.is_maximized(row),
            after=position,
        )
    return views.ranked_trials(trials, int(found[1]))


def _position_after(shown: list[models.Trial], fetched: list[models.Trial]) -> str | None:
    """Where the next page begins; None where no further trial has a rank."""
    rest = fetched[len(shown) :]
    if not shown or not rest or rest[0].rank is None:
        return None
    return f"{shown[-1].rank}:{shown[-1].value!r}:{shown[-1].number}"


def _nothing(study_id: str) -> Drawing:
    """Of a study that the read model does not know yet."""
    insight = models.Insight(study_id=study_id, rungs=[], importances=[], pareto=[], next=None)
    return Drawing(insight, {})
