"""The whole log of a job as a text file."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from drivetrain_schemas.ids import JobId
from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.rest.jobs import find_job
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)

LINES_PER_READ = 5000
# Control characters, which a terminal that shows the file would obey.
REPLACED = dict.fromkeys(
    {*range(32), *range(127, 160)} - {*map(ord, "\t\n")}, "\N{REPLACEMENT CHARACTER}"
)
CUT = "(the log ends here because the metrics service became unavailable; download it again)\n"


@router.get("/jobs/{job_id}/log.txt")
async def log_file(
    job_id: JobId,
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    rank: Annotated[int | None, Query(ge=0, le=99_999)] = None,
) -> StreamingResponse:
    """The lines that there are now, each after its attempt and rank."""
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    # Read before the response begins, so that an unavailable service is an error and no empty file.
    first = await _read(gateway, job_id, rank, 0)
    return StreamingResponse(
        _lines(gateway, job_id, rank, first),
        media_type="text/plain; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{job_id}.log"'},
    )


async def _lines(
    gateway: Gateway, job_id: str, rank: int | None, page: dict[str, object]
) -> AsyncIterator[str]:
    end = page["num_lines"]
    assert isinstance(end, int)
    while True:
        lines, position = page["lines"], page["next"]
        assert isinstance(lines, list)
        assert isinstance(position, int)
        text = "".join(f"a{line['attempt']} r{line['rank']} | {line['line']}\n" for line in lines)
        yield text.translate(REPLACED)
        if position >= end:
            return
        try:
            page = await _read(gateway, job_id, rank, position)
        except (PartUnavailable, PartRefused):
            yield CUT
            return


async def _read(gateway: Gateway, job_id: str, rank: int | None, after: int) -> dict[str, object]:
    answer: dict[str, object] = await gateway.backends.get(
        "metrics",
        "/logs",
        {"job_id": job_id, "rank": rank, "after": after, "limit": LINES_PER_READ},
    )
    return answer
