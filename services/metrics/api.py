"""The read side, for the gateway only: series, samples, charts and logs of a job, as JSON.

Everything is bounded: the samples that one request reads, the points and lines that it returns, and
the requests that read at a time. NaN and infinities, which JSON lacks, are written as words.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import msgspec
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drivetrain_schemas.errors import field_errors
from services.metrics import media
from services.metrics.cold.reading import ColdReader
from services.metrics.instruments import COLD_READS_FAILED, READS_REFUSED
from services.metrics.logs import pages as log_pages
from services.metrics.logs.source import LogSource
from services.metrics.series import curves, times_store
from services.metrics.series.chart_reading import Source
from services.metrics.series.queries import (
    ChartQuery,
    LogsQuery,
    MediaQuery,
    Query,
    SamplesQuery,
    SeriesQuery,
    SystemQuery,
    WindowsQuery,
)
from services.metrics.settings import MetricsSettings
from services.metrics.windows import pages as window_pages
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.errors import StoreError
from services.runtime.object_store import ObjectStore

log = logs.get()

# Reads share the pool of connections with the consumers, which must not wait for them.
MAX_READS = 3
MAX_WAITING_READS = 32
# Less than the gateway waits for the whole answer.
WAIT_SECONDS = 1.0

Q = TypeVar("Q", bound=BaseModel)


class TooManyReads(Exception):
    """As many requests are read at once as may be."""


class Reads:
    """Connections for reads, a few at a time; further requests wait for a moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places = asyncio.Semaphore(MAX_READS)
        self._num_waiting = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """In a transaction that sees one state of the tables. Raises TooManyReads."""
        await self._wait()
        try:
            async with (
                self._database.connection() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield connection
        finally:
            self._places.release()

    async def _wait(self) -> None:
        if self._num_waiting >= MAX_WAITING_READS:
            raise TooManyReads
        self._num_waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise TooManyReads from None
        finally:
            self._num_waiting -= 1


def read_api(database: Database, cold: ObjectStore, settings: MetricsSettings) -> Starlette:
    """GET /series, /system, /samples, /chart, /times, /windows, /logs and /media."""
    reads = Reads(database)
    old = ColdReader(cold)

    async def series(request: Request) -> Response:
        query = _query(SeriesQuery, request)
        async with reads.connection() as connection:
            return _json(await curves.page_of_series(connection, query))

    async def system(request: Request) -> Response:
        query = _query(SystemQuery, request)
        async with reads.connection() as connection:
            return _json(await curves.page_of_system(connection, query))

    async def samples(request: Request) -> Response:
        query = _query(SamplesQuery, request, name=request.query_params.getlist("name"))
        async with reads.connection() as connection:
            return _json(
                await curves.samples(Source(connection, old), query, settings.max_samples_read)
            )

    async def chart(request: Request) -> Response:
        query = _query(ChartQuery, request, name=request.query_params.getlist("name"))
        async with reads.connection() as connection:
            content = await curves.chart(Source(connection, old), query, settings.max_samples_read)
        return Response(content, media_type="application/json")

    async def times(request: Request) -> Response:
        query = _query(Query, request)
        async with reads.connection() as connection:
            return _json(await times_store.of_job(connection, query.job_id))

    async def logged_media(request: Request) -> Response:
        query = _query(MediaQuery, request)
        async with reads.connection() as connection:
            return _json(await media.of_job(connection, query))

    async def windows(request: Request) -> Response:
        query = _query(WindowsQuery, request)
        async with reads.connection() as connection:
            return _json(await window_pages.page(connection, query))

    async def logs(request: Request) -> Response:
        query = _query(LogsQuery, request)
        return _json(await log_pages.page(LogSource(reads.connection, cold, query), query))

    return Starlette(
        routes=[
            Route("/series", series),
            Route("/system", system),
            Route("/samples", samples),
            Route("/chart", chart),
            Route("/times", times),
            Route("/windows", windows),
            Route("/logs", logs),
            Route("/media", logged_media),
        ],
        exception_handlers=_ANSWERS,
    )


def _query(query_class: type[Q], request: Request, **lists: list[str]) -> Q:
    return query_class.model_validate(dict(request.query_params) | lists)


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    errors = field_errors(error)
    detail = "; ".join(f"{one.field}: {one.message}" for one in errors)
    fields = {"errors": [one.model_dump() for one in errors]}
    return _problem(request, 422, "invalid_request", "Invalid request", detail, **fields)


def _busy(request: Request, error: Exception) -> Response:
    READS_REFUSED.inc()
    detail = f"{MAX_READS} requests are read at a time; try again in a second"
    response = _problem(request, 503, "too_many_reads", "Too many reads", detail)
    response.headers["Retry-After"] = "1"
    return response


def _away(request: Request, error: Exception) -> Response:
    COLD_READS_FAILED.inc()
    log.warning("what is in the object store cannot be read", error=str(error))
    detail = f"older ones are in the object store, which cannot be read now: {error}"
    response = _problem(request, 503, "store_unavailable", "Object store unavailable", detail)
    response.headers["Retry-After"] = "10"
    return response


def _problem(
    request: Request, status: int, code: str, title: str, detail: str, **more: object
) -> Response:
    content = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "code": code,
        **more,
    }
    return Response(
        msgspec.json.encode(content), status_code=status, media_type="application/problem+json"
    )


_ANSWERS = {
    ValidationError: _invalid,
    TooManyReads: _busy,
    StoreError: _away,
}
