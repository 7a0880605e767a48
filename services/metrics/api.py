"""The read side, for the gateway only: series, samples and logs of a job, as JSON.

Everything is bounded: the samples that one request reads, the points and lines that it returns. NaN
and infinities, which JSON lacks, are written as words, as in the contract.
"""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar

import asyncpg
import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drivetrain_schemas.base import Misfit
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import JobId
from drivetrain_schemas.units import Attempt, Rank, Step
from services.metrics import store
from services.metrics.core.downsampling import MIN_POINTS, downsample
from services.metrics.core.series import Series, merge
from services.metrics.settings import MetricsSettings
from services.metrics.store import LogChunk, Range
from services.runtime.database import Database

LAST_STEP = 2**53
MAX_SERIES = 50
MAX_NAMES_CHARACTERS = 8192
MAX_LINES = 5000
# A page of logs ends with the line that exceeds this.
MAX_PAGE_CHARACTERS = 2**20


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    job_id: JobId


class SeriesQuery(_Query):
    rank: Rank = 0


def _list_of_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > MAX_SERIES or len(text) > MAX_NAMES_CHARACTERS:
        raise Misfit("names too many series", fix=f"name at most {MAX_SERIES}")
    return names


Names = Annotated[tuple[str, ...], BeforeValidator(_list_of_names)]


class SamplesQuery(_Query):
    names: Names | None = None
    rank: Rank = 0
    attempt: Attempt | None = None
    from_step: Step = 0
    to_step: Step = LAST_STEP
    max_points: Annotated[int, Field(ge=MIN_POINTS, le=100_000)] = 1000


class LogsQuery(_Query):
    rank: Rank | None = None
    after: Annotated[int, Field(ge=0, le=2**53)] | None = None
    tail: Annotated[int, Field(ge=1, le=MAX_LINES)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LINES)] = 1000


Q = TypeVar("Q", bound=_Query)


def read_api(database: Database, settings: MetricsSettings) -> Starlette:
    """GET /series, /samples and /logs."""

    async def series(request: Request) -> Response:
        query = _query(SeriesQuery, request)
        async with database.connection() as connection:
            found = await store.series_of_job(connection, query.job_id, query.rank)
        rows = [
            {
                "name": one.name,
                "num_samples": one.num_samples,
                "last_step": one.last_step,
                "last_value": _json_value(one.last_value),
            }
            for one in found
        ]
        return _json({"job_id": query.job_id, "series": rows})

    async def samples(request: Request) -> Response:
        query = _query(SamplesQuery, request)
        names = query.names
        if names is None:
            async with database.connection() as connection:
                found = await store.series_of_job(
                    connection, query.job_id, query.rank, query.attempt
                )
            names = tuple(one.name for one in found)
        answer = {}
        for name in names[:MAX_SERIES]:
            answer[name] = await _samples(database, query, name, settings.max_samples_read)
        return _json(
            {
                "job_id": query.job_id,
                "series": answer,
                "num_series_left_out": max(0, len(names) - MAX_SERIES),
            }
        )

    async def logs(request: Request) -> Response:
        query = _query(LogsQuery, request)
        async with database.connection() as connection:
            num_lines, num_dropped_bytes = await store.log_head(connection, query.job_id)
            if query.tail is not None and query.after is None:
                lines = await _last_lines(connection, query, query.tail)
            else:
                lines = await _lines_after(connection, query, query.after or 0)
        following = lines[-1]["position"] + 1 if lines else max(query.after or 0, 0)
        return _json(
            {
                "job_id": query.job_id,
                "lines": lines,
                "next": following,
                "num_lines": num_lines,
                "num_dropped_bytes": num_dropped_bytes,
            }
        )

    return Starlette(
        routes=[
            Route("/series", series),
            Route("/samples", samples),
            Route("/logs", logs),
        ],
        exception_handlers={ValidationError: _problem},
    )


async def _samples(
    database: Database, query: SamplesQuery, name: str, max_samples: int
) -> dict[str, Any]:
    wanted = Range(query.job_id, query.rank, name, query.from_step, query.to_step, query.attempt)
    async with database.connection() as connection:
        first = await store.first_readable_step(connection, wanted, max_samples)
        chunks = await store.chunks_of_series(connection, replace(wanted, from_step=first))
    # Long series take a while: not on the loop, which also keeps the consumer alive.
    whole, shown = await asyncio.to_thread(
        lambda: _merged(merge(chunks, first, query.to_step), query.max_points)
    )
    return {
        "steps": shown.steps,
        "values": [_json_value(value) for value in shown.values],
        "num_samples": len(whole.steps),
        "is_downsampled": len(shown.steps) < len(whole.steps),
        "read_from_step": first,
    }


def _merged(whole: Series, max_points: int) -> tuple[Series, Series]:
    return whole, downsample(whole, max_points)


class _Page:
    """Collects lines until there are `limit` or too many characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._num_characters = 0
        self.lines: list[dict[str, Any]] = []

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= self._limit or self._num_characters > MAX_PAGE_CHARACTERS

    def add(self, chunk: LogChunk, index: int) -> None:
        line = chunk.lines[index]
        self._num_characters += len(line)
        self.lines.append(
            {
                "position": chunk.first_position + index,
                "attempt": chunk.attempt,
                "rank": chunk.rank,
                "number": chunk.first_line + index,
                "line": line,
            }
        )


async def _lines_after(
    connection: asyncpg.Connection, query: LogsQuery, position: int
) -> list[dict[str, Any]]:
    page = _Page(query.limit)
    chunks = store.log_chunks_after(connection, query.job_id, query.rank, position)
    async with aclosing(chunks):
        async for chunk in chunks:
            for index in range(max(0, position - chunk.first_position), len(chunk.lines)):
                page.add(chunk, index)
                if page.is_full:
                    return page.lines
    return page.lines


async def _last_lines(
    connection: asyncpg.Connection, query: LogsQuery, limit: int
) -> list[dict[str, Any]]:
    page = _Page(limit)
    chunks = store.log_chunks_backwards(connection, query.job_id, query.rank)
    async with aclosing(chunks):
        async for chunk in chunks:
            for index in reversed(range(len(chunk.lines))):
                page.add(chunk, index)
                if page.is_full:
                    return page.lines[::-1]
    return page.lines[::-1]


def _json_value(value: float) -> float | Literal["nan", "inf", "-inf"]:
    if isfinite(value):
        return value
    if value != value:
        return "nan"
    return "inf" if value > 0 else "-inf"


def _query(query_class: type[Q], request: Request) -> Q:
    return query_class.model_validate(dict(request.query_params))


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    content = {
        "type": "about:blank",
        "title": "Invalid request",
        "status": 422,
        "detail": "; ".join(f"{one.field}: {one.message}" for one in field_errors(error)),
        "instance": request.url.path,
        "code": "invalid_request",
        "errors": [one.model_dump() for one in field_errors(error)],
    }
    return Response(
        msgspec.json.encode(content), status_code=422, media_type="application/problem+json"
    )
