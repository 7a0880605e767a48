"""Every refusal in one form: application/problem+json (RFC 9457), with the field and the fix.

Routes raise `Problem`; exceptions of frameworks and adapters are turned into the same form here, so
that no caller sees another one.
"""

from collections.abc import Callable
from typing import Any, cast

import asyncpg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from drivetrain_schemas.errors import field_errors
from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.disk import disk_warning
from services.gateway.problem import Problem
from services.gateway.rest.unavailable import cause_of
from services.runtime import logs
from services.runtime.errors import TEMPORARY_ERRORS

log = logs.get()

MEDIA_TYPE = "application/problem+json"

# `Retry-After` of what is unavailable, and of a part that was waited for in vain.
RETRY_SECONDS = 2
SILENT_RETRY_SECONDS = 15
_READ_FROM = {
    "metrics": "samples, charts, pictures and lines of logs",
    "cost": "prices and what was spent",
    "hpo": "what a search does next",
    "scheduler": "the place in the queue",
}

TITLES = {
    400: "Bad request",
    401: "Authentication required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    411: "Length required",
    413: "Content too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Invalid request",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}


class FieldProblem(BaseModel):
    """One field: what is wrong with it, and the fix."""

    field: str
    message: str
    fix: str = ""


class ProblemDocument(BaseModel):
    """A refusal. `code` is for machines, `detail` and `errors` are for people."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[FieldProblem] = []


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: the problems that a route may answer with."""
    return {
        status: {
            "description": TITLES[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        for status in sorted({*statuses, 401, 403, 421, 503})
    }


def respond(problem: Problem, instance: str) -> Response:
    document = {
        "type": f"urn:drivetrain:problem:{problem.code}",
        "title": TITLES.get(problem.status, "The request failed"),
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
        "code": problem.code,
        "errors": [error.model_dump() for error in problem.errors],
    }
    return JSONResponse(document, problem.status, problem.headers, MEDIA_TYPE)


def _answer(request: Request, problem: Problem) -> Response:
    """A page for people, the document for programs."""
    if problem.status == 503 and (cause := disk_warning(request.app.state.gateway)):
        detail = f"{problem.detail}. {cause}"
        problem = Problem(503, problem.code, detail, problem.errors, problem.headers)
    page: Callable[[Request, Problem], Response] | None = request.app.state.problem_page
    if page is None or request.url.path.startswith("/v1/"):
        return respond(problem, request.url.path)
    return page(request, problem)


def install(app: FastAPI) -> None:
    """Let every exception of a route end as a problem."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(PartUnavailable, _on_part_unavailable)
    app.add_exception_handler(PartRefused, _on_part_refused)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    for kind in TEMPORARY_ERRORS:
        app.add_exception_handler(cast(type[Exception], kind), _on_temporary)
    app.add_exception_handler(asyncpg.QueryCanceledError, _on_temporary)
    app.add_exception_handler(Exception, _on_bug)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _answer(request, error)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # It has pydantic's errors(), whose `loc` begins with where the value was found.
    errors = tuple(
        one.model_copy(update={"field": _without_origin(one.field), "fix": _fix_of(one.fix)})
        for one in field_errors(cast(ValidationError, error), contract=_contract_of(request))
    )
    detail = "; ".join(f"{one.field}: {one.message}" for one in errors[:5])
    return _answer(request, Problem(422, "invalid_request", detail, errors))


def _contract_of(request: Request) -> type[BaseModel] | None:
    """What the body of this request had to be."""
    body = getattr(request.scope.get("route"), "body_field", None)
    annotation = body.field_info.annotation if body is not None else None
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None


def _fix_of(fix: str) -> str:
    return fix.replace("did you mean body.", "did you mean ", 1)


def _without_origin(field: str) -> str:
    origin, _, rest = field.partition(".")
    return rest or "(whole)" if origin in ("body", "query", "path", "header") else field


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "refused")
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
    headers = dict(error.headers or {})
    return _answer(request, Problem(error.status_code, code, detail, headers=headers))


async def _on_part_unavailable(request: Request, error: Exception) -> Response:
    """A caller that repeats its request at once would wait as long again for a silent part."""
    assert isinstance(error, PartUnavailable)
    if error.why:
        detail = f"the {error.part} service cannot answer: {error.why}; everything else works"
    else:
        why = "did not answer in time" if error.is_silent else "cannot be reached"
        detail = (
            f"the {error.part} service {why}: {_READ_FROM[error.part]} cannot be read now, and "
            "nothing of it is lost; everything else works"
        )
    seconds = SILENT_RETRY_SECONDS if error.is_silent else RETRY_SECONDS
    return _unavailable(request, "part_unavailable", detail, retry_seconds=seconds)


async def _on_part_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, PartRefused)
    status = error.status if error.status in TITLES else 422
    return _answer(request, Problem(status, "invalid_request", error.detail, error.errors))


async def _on_temporary(request: Request, error: Exception) -> Response:
    cause = cause_of(error)
    log.warning(
        "request failed temporarily", path=request.url.path, code=cause.code, error=repr(error)
    )
    return _unavailable(request, cause.code, cause.detail)


def _unavailable(
    request: Request, code: str, detail: str, *, retry_seconds: int = RETRY_SECONDS
) -> Response:
    headers = {"Retry-After": str(retry_seconds)}
    return _answer(request, Problem(503, code, detail, headers=headers))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    log.info("request aborted by the client", path=request.url.path)
    return _answer(request, Problem(400, "request_aborted", "the request ended before its body"))


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, error=repr(error))
    detail = "a bug in the gateway, not in the request; its log has the details"
    return _answer(request, Problem(500, "internal_error", detail))
