"""Routes about what a job logged: the names of its series, charts of many, samples.

The metrics service answers them over its own tables; here the job is looked up for the caller.
"""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from drivetrain_schemas.ids import JobId
from services.gateway import queries
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.problem import not_found
from services.gateway.rest import models
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MAX_SERIES = 50
SeriesName = Annotated[str, Query(min_length=1, max_length=128)]
Rank = Annotated[int, Query(ge=0, le=99_999)]
Attempt = Annotated[int | None, Query(ge=1, le=999_999)]
Step = Annotated[int, Query(ge=0, le=2**53)]
LastStep = Annotated[int | None, Query(ge=0, le=2**53)]


@router.get("/{job_id}/series", response_model=models.SeriesPage, responses=answers(404, 422))
async def series(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    search: Annotated[str, Query(max_length=128)] = "",
    after: Annotated[str, Query(max_length=128)] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
    rank: Rank = 0,
    system: bool = False,
) -> Any:
    """The series by name with their last values; `search`: a part of the name, in any case.

    `system`: what the rank's pod says of itself, instead of what the job logged.
    """
    await check_job(gateway, caller, job_id)
    return await gateway.backends.get(
        "metrics",
        "/series",
        {
            "job_id": job_id,
            "search": search,
            "after": after,
            "limit": limit,
            "rank": rank,
            "system": system,
        },
    )


@router.get("/{job_id}/system", response_model=models.SystemPage, responses=answers(404, 422))
async def system(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    from_rank: Rank = 0,
    limit: Annotated[int, Query(ge=1, le=128)] = 32,
) -> Any:
    """What each pod used last: CPU, memory, disk, network, devices; by the pod's first rank.

    Over time: `chart` and `metrics`, whose steps are then times in seconds of the epoch.
    """
    await check_job(gateway, caller, job_id)
    return await gateway.backends.get(
        "metrics", "/system", {"job_id": job_id, "from_rank": from_rank, "limit": limit}
    )


@router.get("/{job_id}/chart", response_model=models.Chart, responses=answers(404, 422))
async def chart(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    name: Annotated[list[SeriesName], Query(min_length=1, max_length=MAX_SERIES)],
    from_step: Step = 0,
    to_step: LastStep = None,
    max_points: Annotated[int, Query(ge=16, le=2000)] = 500,
    rank: Rank = 0,
    attempt: Attempt = None,
    after: Annotated[str, Query(max_length=80)] = "",
) -> Any:
    """Curves of the series `name` (repeated) in at most 300 KB: no peak is hidden, few samples are
    exact, and other points have six significant digits, or whole numbers from a million on.

    Of each step, what the last attempt logged, or the one named. `after`: the `next` of the last
    answer, for what changed since.
    """
    await check_job(gateway, caller, job_id)
    found = await gateway.backends.get(
        "metrics",
        "/chart",
        {
            "job_id": job_id,
            "name": name,
            "from_step": from_step,
            "to_step": to_step,
            "max_points": max_points,
            "rank": rank,
            "attempt": attempt,
            "after": after,
        },
    )
    # Not through the model: it would check tens of thousands of numbers again.
    return Response(msgspec.json.encode(found), media_type="application/json")


@router.get("/{job_id}/times", response_model=models.Times, responses=answers(404, 422))
async def times(job_id: JobId, gateway: GatewayDep, caller: CallerDep) -> Any:
    """When each attempt was at which step: few points, between which steps are spread evenly."""
    await check_job(gateway, caller, job_id)
    return await gateway.backends.get("metrics", "/times", {"job_id": job_id})


@router.get("/{job_id}/windows", response_model=models.Windows, responses=answers(404, 422))
async def windows(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=240)] = 60,
) -> Any:
    """The newest half minutes of the job: steps per second, its slowest pod, utilisation of
    devices, losses and gradient norms. `after`: only windows that began later."""
    await check_job(gateway, caller, job_id)
    return await gateway.backends.get(
        "metrics", "/windows", {"job_id": job_id, "after": after, "limit": limit}
    )


@router.get("/{job_id}/metrics", response_model=models.Samples, responses=answers(404, 422))
async def metrics(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    names: Annotated[str | None, Query(max_length=8192)] = None,
    system: bool = False,
    name: Annotated[list[SeriesName] | None, Query(max_length=MAX_SERIES)] = None,
    rank: Rank = 0,
    attempt: Attempt = None,
    from_step: Step = 0,
    to_step: LastStep = None,
    max_points: Annotated[int, Query(ge=16, le=20_000)] = 1000,
) -> Any:
    """Samples by series (`name` repeated, or `names` separated by commas; all without either),
    downsampled, peaks kept.

    Of each step, what the last attempt logged, or the one named. At most 50 series. `system`:
    without names, what the rank's pod says of itself.
    """
    await check_job(gateway, caller, job_id)
    return await gateway.backends.get(
        "metrics",
        "/samples",
        {
            "job_id": job_id,
            "name": name,
            "names": names,
            "system": system,
            "rank": rank,
            "attempt": attempt,
            "from_step": from_step,
            "to_step": to_step,
            "max_points": max_points,
        },
    )


async def check_job(gateway: Gateway, caller: Caller, job_id: str) -> None:
    """Raises Problem (404) where the caller has no such job."""
    async with gateway.platform.database.connection() as connection:
        is_known = await queries.jobs.find(connection, caller.tenant_id, job_id) is not None
    if not is_known and gateway.submissions.get(caller.tenant_id, job_id) is None:
        raise not_found("job", job_id)
