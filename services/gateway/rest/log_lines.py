"""The route about what a job's ranks printed: pages of lines, and searches in them.

The metrics service answers; here the job is looked up for the caller.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from drivetrain_schemas.ids import JobId
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.rest import models
from services.gateway.rest.problems import answers
from services.gateway.rest.series import check_job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MAX_LINES = 5000
Position = Annotated[int | None, Query(ge=0, le=2**53)]
Level = Literal["debug", "info", "warning", "error", "critical"]


@router.get("/{job_id}/logs", response_model=models.LogPage, responses=answers(404, 422))
async def logs(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    rank: Annotated[int | None, Query(ge=0, le=99_999)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=999_999)] = None,
    level: Level | None = None,
    search: Annotated[str, Query(max_length=200)] = "",
    since: datetime | None = None,
    until: datetime | None = None,
    after: Position = None,
    before: Position = None,
    tail: Annotated[int | None, Query(ge=1, le=MAX_LINES)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = 1000,
) -> Any:
    """Lines of all ranks, or of one. `after`: `limit` lines from a position on; `tail`: the last
    ones, of those before the position `before` where it is given.

    `search`: a part of the line, in any case. `level`: this or a higher one, in lines of the usual
    shapes. `since` and `until`: when lines arrived. A search reads a bounded amount: `is_complete`
    says whether it came to the end, or go on with `after` set to `next`, `before` to
    `searched_from`.
    """
    await check_job(gateway, caller, job_id)
    given: dict[str, str | int | None] = {
        "job_id": job_id,
        "rank": rank,
        "attempt": attempt,
        "level": level,
        "search": search or None,
        "since": None if since is None else since.isoformat(),
        "until": None if until is None else until.isoformat(),
        "after": after,
        "before": before,
        "tail": tail,
        "limit": limit,
    }
    return await gateway.backends.get("metrics", "/logs", given)
