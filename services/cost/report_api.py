"""The chargeback report as a stream: one JSON document per line, in the order of days."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date, timedelta

from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from drivetrain_schemas.ids import TenantId
from services.cost import store
from services.cost.chargeback import Ask, By, lines
from services.cost.core.chargeback import Line
from services.cost.core.phases import Amount
from services.cost.core.prices import PriceBook
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
        if not timedelta() <= last - first < timedelta(days=MAX_DAYS):
            raise HTTPException(422, f"last: write a day from first to {MAX_DAYS - 1} days later")
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
        async for line, amount in lines(connection, book, ask, now):
            piece.append(_text(line, amount))
            if len(piece) == _LINES_PER_PIECE:
                yield "".join(piece).encode()
                piece.clear()
    # The last line says that none is missing.
    yield "".join((*piece, '{"is_complete": true}\n')).encode()


def _text(line: Line, amount: Amount) -> str:
    return json.dumps(_document(line, amount)) + "\n"


def _document(line: Line, amount: Amount) -> dict[str, object]:
    return {
        "day": line.of.day.isoformat(),
        "pool": line.of.pool,
        "device_type": line.of.device_type,
        "kind": line.kind,
        "tenant_id": line.tenant_id or None,
        "project": line.project or None,
        "study_id": line.study_id or None,
        "job_id": line.job_id or None,
        "job_name": line.job_name or None,
        "slot_microseconds": amount.slot_microseconds,
        "micro_usd": amount.micro_usd,
    }
