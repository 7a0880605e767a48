"""The route that lists jobs, and the same list for the pages."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from drivetrain_schemas.ids import StudyId
from services.gateway import queries
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.problem import invalid
from services.gateway.queries.job_list import At, Sort, Wanted
from services.gateway.rest import models, views
from services.gateway.rest.jobs import MAX_PAGE, STATES
from services.gateway.rest.positions import position_text, read_position, read_value_position
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Short = Annotated[str, Field(min_length=1, max_length=128)]


class JobFilter(BaseModel):
    """What a list of jobs may be narrowed to. `search`: a part of the name, or how an id begins."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    state: str | None = None
    study_id: StudyId | None = None
    project: Short | None = None
    tag: Short | None = None
    metric: Short | None = None
    search: Short | None = None
    sort: Sort = "newest"
    after: Annotated[str | None, Field(max_length=512)] = None

    def wanted(self) -> Wanted:
        """Raises Problem (422) for a state that does not exist, or an order by no metric."""
        if self.state is not None and self.state not in STATES:
            fix = f"one of {', '.join(STATES)}"
            raise invalid("state", f"there is no state {self.state[:40]!r}", fix)
        if self.sort in ("highest", "lowest") and self.metric is None:
            raise invalid("metric", "the order by value needs one", "name a metric, or sort=newest")
        return Wanted(
            self.state,
            self.study_id,
            self.project,
            self.tag,
            self.metric,
            self.search,
            self.sort,
        )


class JobListQuery(JobFilter):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


@router.get("", responses=answers(422))
async def list_jobs(
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    query: Annotated[JobListQuery, Query()],
) -> models.JobList:
    """Newest first, or by the best value of a metric (`sort=highest`).

    A search by text, tag or metric looks at 5,000 jobs and goes on from there with `next`.
    """
    base = base_url(request)
    found = await find_jobs(gateway, caller.tenant_id, query.wanted(), query.after, query.limit)
    return models.JobList(
        jobs=[views.job_summary(row, base) for row in found.rows],
        next=next_text(found.next),
        num_searched=found.num_searched,
    )


async def find_jobs(
    gateway: Gateway, tenant_id: str, wanted: Wanted, after: str | None, limit: int
) -> queries.job_list.Found:
    """One page after a position. Raises Problem (422) where that is invalid."""
    at: At | None = None
    if after is not None and wanted.is_by_value:
        at = At(*read_value_position(after))
    elif after is not None:
        position = read_position(after, 2)
        assert position is not None
        at = At(position[0], position[1][0])
    async with gateway.platform.database.connection() as connection:
        return await queries.job_list.page(connection, tenant_id, wanted, at, limit)


async def find_jobs_of_no_study(
    gateway: Gateway, tenant_id: str, after: str | None, limit: int
) -> queries.job_list.Found:
    return await find_jobs(gateway, tenant_id, replace(Wanted(), without_trials=True), after, limit)


def next_text(at: At | None) -> str | None:
    return None if at is None else position_text(at.key, at.job_id)
