"""The route about curves of several jobs, which the metrics service reads."""

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Response

from drivetrain_schemas.ids import JobId
from services.gateway import queries
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.problem import not_found
from services.gateway.rest import models
from services.gateway.rest.problems import answers
from services.gateway.rest.series import MAX_SERIES, Rank, SeriesName

router = APIRouter(prefix="/v1", tags=["jobs"])

Place = Annotated[float | None, Query(ge=0, le=2**53)]


@router.get("/curves", response_model=models.Curves, responses=answers(404, 422))
async def curves(
    gateway: GatewayDep,
    caller: CallerDep,
    job_id: Annotated[list[JobId], Query(min_length=1, max_length=MAX_SERIES)],
    name: Annotated[list[SeriesName], Query(min_length=1, max_length=MAX_SERIES)],
    by: Literal["step", "time", "relative"] = "step",
    start: Place = None,
    end: Place = None,
    num_buckets: Annotated[int, Query(ge=16, le=2000)] = 500,
    rank: Rank = 0,
) -> Any:
    """Each series `name` of each job (both repeated; at most 50 curves, 20,000 buckets in all) in
    equal buckets of steps, of time (seconds of the epoch), or of time since the job's first step.

    Each bucket has its lowest, highest and mean sample, so that no peak is hidden; few samples are
    exact. `start` and `end`: a part of the axis. Of each step, what the last attempt logged.
    """
    async with gateway.platform.database.connection() as connection:
        known = await queries.jobs.known(connection, caller.tenant_id, job_id)
    for one in job_id:
        if one not in known and gateway.submissions.get(caller.tenant_id, one) is None:
            raise not_found("job", one)
    found = await gateway.backends.get(
        "metrics",
        "/curves",
        {
            "job_id": job_id,
            "name": name,
            "by": by,
            "start": start,
            "end": end,
            "num_buckets": num_buckets,
            "rank": rank,
        },
    )
    # Not through the model: it would check tens of thousands of numbers again.
    return Response(msgspec.json.encode(found), media_type="application/json")
