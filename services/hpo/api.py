"""The read API of the search service: what a search does next, and what a study would use.

Only the gateway calls it. Nothing is changed; a decision is made once for each state of a study,
and beside the event loop where it may take long, so that the other studies go on.
"""

import asyncio
from collections import OrderedDict
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.requests import Request

from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import StudyId
from drivetrain_schemas.studies import StudySpec
from services.hpo import messages, rates, searches, spending, store
from services.hpo.core import outlook
from services.hpo.core.preview import Known
from services.hpo.core.search import Search
from services.hpo.previews import preview_of
from services.runtime.operations import ASGIApp
from services.runtime.service import Platform

MAX_ANSWERS = 64
MAX_BODY_BYTES = 256 * 1024


def read_api(platform: Platform) -> ASGIApp:
    """GET /next and POST /preview."""
    app = FastAPI(title="Drivetrain hpo", docs_url=None, redoc_url=None, openapi_url=None)
    answers: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()

    one_by_one = asyncio.Lock()

    @app.get("/next")
    async def next_of(study_id: StudyId) -> dict[str, Any]:
        async with (
            one_by_one,
            platform.database.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            study = await store.get_study(connection, study_id)
            if study is None:
                raise HTTPException(404, f"there is no study {study_id}")
            known = answers.get(study_id)
            if known is None or known[0] != study.stamp:
                found = await searches.take(connection, study)
                answer = await searches.ask(study, found, partial(_outlook, study_id, found.spec))
                known = answers[study_id] = (study.stamp, answer)
                while len(answers) > MAX_ANSWERS:
                    answers.popitem(last=False)
            now = platform.clock.now()
            spent = await spending.spent(connection, study_id, study.started_at, now)
        return known[1] | {"spent": asdict(spent)}

    @app.post("/preview")
    async def preview(request: Request, tenant_id: str | None = None) -> JSONResponse:
        """Without a tenant, nothing is known of the seconds and the price of its trials."""
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"at most {MAX_BODY_BYTES} bytes")
        try:
            spec = StudySpec.model_validate_json(body)
        except ValidationError as error:
            return _invalid(field_errors(error, contract=StudySpec))
        if errors := messages.errors_of_trials(spec) or messages.errors_of_search(spec):
            return _invalid(errors)
        known = Known()
        if tenant_id is not None:
            async with platform.database.connection() as connection:
                known = await rates.known(connection, tenant_id, spec)
        return JSONResponse(await asyncio.to_thread(preview_of, spec, known))

    return app


def _outlook(study_id: str, spec: StudySpec, search: Search) -> dict[str, Any]:
    status, found = search.status, outlook.what_next(search)
    limits = messages.of_limits(status.numbers.limits).model_dump(exclude_none=True)
    return {
        "study_id": study_id,
        "state": status.state,
        "sentence": _sentence(found),
        "next": {name: value for name, value in asdict(found).items() if value is not None},
        "sampler": spec.sampler.value,
        "pruner": None if spec.pruner is None else spec.pruner.type,
        "num_active": search.num_active,
        "num_waiting": outlook.num_waiting(search),
        "num_paused": outlook.num_paused(search),
        "num_proposed": len(search.trials),
        "num_trials": status.num_trials,
        "rungs": [asdict(rung) for rung in outlook.rungs(search)],
        "limits": limits or None,
    }


def _sentence(found: outlook.Next) -> str:
    why = found.why.rstrip(".")
    match found.kind:
        case "propose":
            return f"The next free place goes to trial {found.number}, a new point: {why}."
        case "fork":
            return (
                f"The next free place goes to trial {found.number}, which starts from the "
                f"checkpoint of trial {found.parent}: {why}."
            )
        case "promote":
            return f"The next free place goes to trial {found.number}, which waits: {why}."
        case "drop":
            return f"Trial {found.number}, which waits, ends: {why}."
        case "wait":
            return f"Nothing is started now: {why}."
        case "end":
            return f"Nothing more is started: {why}."


def _invalid(errors: Any) -> JSONResponse:
    detail = "; ".join(f"{one.field}: {one.message}" for one in errors)
    content = {"detail": detail, "errors": [one.model_dump() for one in errors]}
    return JSONResponse(content, status_code=422)
