"""The whole HTTP side: API, stream and pages behind the gate, and the OpenAPI document."""

from collections.abc import MutableMapping
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi

from services.gateway.backends import Backends
from services.gateway.context import Gateway
from services.gateway.instruments import DISK_FREE_BYTES
from services.gateway.live import Live
from services.gateway.model_age import HEADER, ModelAge, ModelAgeHeader
from services.gateway.pages import routes as pages
from services.gateway.pages.routes import WANTED
from services.gateway.rest import (
    alerts,
    budgets,
    chargeback,
    code,
    comparison,
    external_trials,
    files,
    fleet,
    job_commands,
    job_list,
    jobs,
    log_lines,
    media,
    names,
    parked,
    platform,
    problems,
    reproduction,
    series,
    stream,
    studies,
    study_commands,
)
from services.gateway.rest.gate import ASGIApp, Gate, Receive, Scope, Send
from services.gateway.rest.problems import ProblemDocument
from services.gateway.rest.requests import refuse_unknown_query
from services.gateway.settings import GatewaySettings
from services.runtime import tracing
from services.runtime.disk import read_disk
from services.runtime.service import Platform

DESCRIPTION = """Submit and watch training jobs.

Send `Authorization: Bearer TOKEN`. Refusals are `application/problem+json` with a `code`, and with
the field and the fix in `errors`. A request with the same `request_id` (or `Idempotency-Key`) again
is the same request."""


def http_app(live: Live, model_age: ModelAge, runtime: Platform) -> ASGIApp:
    """The application that the runtime serves."""
    settings = runtime.settings
    assert isinstance(settings, GatewaySettings)
    if directory := settings.data_directory:
        DISK_FREE_BYTES.set_function(lambda: read_disk(directory).free_bytes)
    gateway = Gateway(
        settings=settings,
        platform=runtime,
        live=live,
        model_age=model_age,
        backends=Backends(
            {
                "metrics": settings.metrics_url,
                "cost": settings.cost_url,
                "hpo": settings.hpo_url,
                "scheduler": settings.scheduler_url,
            },
            settings.read_token.get_secret_value() if settings.read_token else None,
        ),
    )
    return traced(gated(build_app(gateway), gateway))


def traced(app: ASGIApp) -> ASGIApp:
    """A span for each request that may change something; reads and streams have none."""
    if tracing.endpoint() is None:
        return app

    async def with_span(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await app(scope, receive, send)
            return
        parent = dict(scope["headers"]).get(b"traceparent", b"").decode("latin-1")
        name = f"{scope['method']} {_route(scope['path'])}"
        with tracing.span(name, "server", parent, {"url.path": scope["path"]}):
            await app(scope, receive, send)

    return with_span


def _route(path: str) -> str:
    """The path without ids, so that names are few."""
    return "/".join("{id}" if "_" in part else part for part in path.split("/"))


def gated(app: FastAPI, gateway: Gateway) -> ASGIApp:
    """The application behind its gate."""
    return Gate(app, _sign_in(app), gateway.settings, gateway.platform.clock)


def build_app(gateway: Gateway) -> FastAPI:
    """The routes, without the gate before them."""
    app = FastAPI(
        title="Drivetrain",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.gateway = gateway
    app.state.problem_page = pages.problem_page
    problems.install(app)
    for part in (
        job_list,
        jobs,
        log_lines,
        series,
        comparison,
        media,
        reproduction,
        job_commands,
        study_commands,
        studies,
        external_trials,
        names,
        platform,
        alerts,
        budgets,
        chargeback,
        fleet,
        parked,
        code,
        files,
        stream,
    ):
        app.include_router(part.router, dependencies=[Depends(refuse_unknown_query)])
    pages.install(app, gateway.settings.assets_directory)
    clock = gateway.platform.clock
    app.add_middleware(ModelAgeHeader, model_age=gateway.model_age, clock=clock)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document with our problems instead of its own errors, and the token."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["ProblemDocument"] = problem
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        _tell_age(document)
        app.openapi_schema = document
    return app.openapi_schema


def _tell_age(document: dict[str, Any]) -> None:
    """Every answer may be older than the newest event."""
    description = "How far this answer is behind the platform's events, in seconds; 0: not at all"
    header = {HEADER: {"description": description, "schema": {"type": "integer", "minimum": 0}}}
    for path in document["paths"].values():
        for status, answer in path.get("get", {}).get("responses", {}).items():
            if status.startswith("2"):
                answer["headers"] = header


def _sign_in(app: FastAPI) -> ASGIApp:
    """Answers a page request without credentials: by the code in its link, or the sign-in page."""

    async def sign_in(scope: Scope, receive: Receive, send: Send) -> None:
        has_code = scope["query_string"].startswith(b"code=")
        path = "/login" if has_code else "/sign-in"
        inner: MutableMapping[str, Any] = {**scope, "path": path, "raw_path": path.encode()}
        query = scope["query_string"] if has_code else b""
        await app({**inner, "query_string": query, WANTED: scope["path"]}, receive, send)

    return sign_in
