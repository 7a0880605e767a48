"""The chargeback report: as lines of JSON, as CSV, or as CSV with the columns of FOCUS 1.0."""

import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import date, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from services.gateway.backends import PartUnavailable
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.core import chargeback
from services.gateway.problem import invalid
from services.gateway.rest.days import MONTH, Day
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1/cost", tags=["money"])

Form = Literal["jsonl", "csv", "focus"]

_MEDIA_TYPES: dict[Form, str] = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "focus": "text/csv",
}
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the report, line by line, in the order of days",
        "content": {media_type: {} for media_type in ("application/x-ndjson", "text/csv")},
    }
}
_PIECE_CHARACTERS = 16_384


class ReportBrokeOff(Exception):
    """The cost service ended in the middle of a report."""


@router.get(
    "/report", response_class=StreamingResponse, responses={**_CONTENT, **answers(422, 429)}
)
async def report(
    gateway: GatewayDep,
    caller: CallerDep,
    month: Annotated[str | None, Query(pattern=MONTH)] = None,
    first: Day | None = None,
    last: Day | None = None,
    by: Literal["tenant", "project", "study", "job"] = "job",
    form: Annotated[Form, Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """Who had what of each pool, day by day (UTC), in productive, checkpointing, lost and starting
    time; `platform` and `idle` were nobody's. The lines of a day add up to the pool's cost exactly.

    Of a month, or from `first` to `last`; by default of this month. At most 366 days.
    """
    first, last = _days(gateway.platform.clock.now().date(), month, first, last)
    path = f"/chargeback/{caller.tenant_id}"
    parameters = {"first": first.isoformat(), "last": last.isoformat(), "by": by}
    pieces = _pieces(gateway.backends.lines("cost", path, parameters), form)
    begin = await anext(pieces)  # what is refused is refused before the answer begins

    async def send() -> AsyncIterator[str]:
        yield begin
        try:
            async for piece in pieces:
                yield piece
        except PartUnavailable as error:
            # The answer has begun: its end must be missing for the caller, too.
            raise ReportBrokeOff from error

    name = f"cost-{first}-{last}-{by}.{'jsonl' if form == 'jsonl' else 'csv'}"
    return StreamingResponse(
        send(),
        media_type=_MEDIA_TYPES[form],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _pieces(lines: AsyncGenerator[dict[str, Any], None], form: Form) -> AsyncIterator[str]:
    """Raises PartUnavailable where the last line is missing: half a report must not look whole."""
    begin, row = _writer(form)
    piece = io.StringIO()
    piece.write(begin)
    async for line in lines:
        if line.get("is_complete"):
            if form == "jsonl":
                piece.write(row(line))
            yield piece.getvalue()
            return
        piece.write(row(line))
        if piece.tell() > _PIECE_CHARACTERS:
            yield piece.getvalue()
            piece = io.StringIO()
    raise PartUnavailable("cost")


def _writer(form: Form) -> tuple[str, Callable[[dict[str, Any]], str]]:
    """What comes first, and how a line is written."""
    match form:
        case "jsonl":
            return "", lambda line: json.dumps(line) + "\n"
        case "csv":
            return chargeback.header(chargeback.COLUMNS), chargeback.csv_row
        case "focus":
            begin = chargeback.header(chargeback.FOCUS_COLUMNS)
            return begin, partial(chargeback.focus_row, account="drivetrain")


def _days(
    today: date, month: str | None, first: date | None, last: date | None
) -> tuple[date, date]:
    if month is not None:
        if first is not None or last is not None:
            raise invalid("month", "is given with first or last", "give one or the other")
        first = date.fromisoformat(f"{month}-01")
        return first, (first + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    last = last or today
    return first or last.replace(day=1), last
