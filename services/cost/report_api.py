"""The chargeback report as a stream: one JSON document per line, in the order of days."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date, datetime

import asyncpg
from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from drivetrain_schemas.ids import TenantId
from services.cost import store
from services.cost.chargeback import Ask, By, lines, storage_lines
from services.cost.core.chargeback import Line
from services.cost.core.phases import Amount
from services.cost.core.prices import PriceBook
from services.cost.days import check_days
from services.runtime.service import Platform

MAX_DAYS = 366
# A report holds a connection of the database until its last line is read.
MAX_AT_ONCE = 2
LIMIT_SECONDS = 600
_LINES_PER_PIECE = 200


def report_routes(platform: Platform, book: PriceBook) -> APIRouter:
    router = APIRouter()
    places = asyncio.Semaphore(MAX_AT_ONCE)

    @router.get("/chargeback/{tenant_id}", response_class=StreamingResponse)
    async def chargeback(
        tenant_id: TenantId, first: date, last: date, by: By = By.JOB
    ) -> StreamingResponse:
        check_days(first, last, MAX_DAYS)
        if places.locked():
            raise HTTPException(429, "other reports are being written: try again in a minute")
        ask = Ask(tenant_id, first, last, by)
        return StreamingResponse(
            _pieces(platform, book, ask, places), media_type="application/x-ndjson"
        )

    return router


async def _pieces(
    platform: Platform, book: PriceBook, ask: Ask, places: asyncio.Semaphore
) -> AsyncIterator[bytes]:
    piece: list[str] = []
    async with (
        places,
        asyncio.timeout(LIMIT_SECONDS),
        platform.database.connection() as connection,
        store.one_moment(connection),
    ):
        now = await store.now(connection)
        async for document in _documents(connection, book, ask, now):
            piece.append(json.dumps(document) + "\n")
            if len(piece) == _LINES_PER_PIECE:
                yield "".join(piece).encode()
                piece.clear()
    # The last line says that none is missing.
    yield "".join((*piece, '{"is_complete": true}\n')).encode()


async def _documents(
    connection: asyncpg.Connection, book: PriceBook, ask: Ask, now: datetime
) -> AsyncIterator[dict[str, object]]:
    """The lines of pools, and after them those of stored checkpoints."""
    async for line, amount in lines(connection, book, ask, now):
        yield _document(line, amount)
    async for line, byte_microseconds, micro_usd in storage_lines(connection, ask):
        yield _document(line, Amount(0, micro_usd), byte_microseconds)


def _document(line: Line, amount: Amount, byte_microseconds: int = 0) -> dict[str, object]:
    return {
        "day": line.of.day.isoformat(),
        "pool": line.of.pool or None,
        "device_type": line.of.device_type or None,
        "kind": line.kind,
        "capacity": line.capacity.value or None,
        "tenant_id": line.tenant_id or None,
        "project": line.project or None,
        "study_id": line.study_id or None,
        "job_id": line.job_id or None,
        "job_name": line.job_name or None,
        "slot_microseconds": amount.slot_microseconds,
        "byte_microseconds": byte_microseconds,
        "micro_usd": amount.micro_usd,
    }
