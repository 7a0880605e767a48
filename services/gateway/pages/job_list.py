"""The page that lists jobs: search, filters, order, the trials of a study as one row, and the form
that compares the chosen ones."""

import re
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator
from starlette.responses import RedirectResponse, Response

from drivetrain_schemas.ids import StudyId
from services.gateway import queries
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page, stream_position
from services.gateway.queries.job_list import At
from services.gateway.rest import explanations, models, views
from services.gateway.rest.job_list import (
    JobFilter,
    Short,
    find_jobs,
    find_jobs_of_no_study,
    next_text,
)
from services.gateway.rest.jobs import STATES
from services.gateway.rest.positions import read_position
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)

JOBS_PER_PAGE = 50
_JOB_ID = re.compile("job_[a-z2-7]{26}")


def _given(value: Any) -> Any:
    """A field that was left empty in the form is not given."""
    return None if isinstance(value, str) and not value.strip() else value


Text = Annotated[Short | None, BeforeValidator(_given)]


class PageQuery(JobFilter):
    """`group`: the trials of a study as one row, where nothing else narrows the list."""

    state: Annotated[str | None, BeforeValidator(lambda s: s if s in STATES else None)] = None
    study_id: Annotated[StudyId | None, BeforeValidator(_given)] = None
    project: Text = None
    tag: Text = None
    metric: Text = None
    search: Text = None
    group: str = "yes"

    @property
    def is_narrowed(self) -> bool:
        return any((self.state, self.study_id, self.project, self.tag, self.metric, self.search))

    @property
    def is_grouped(self) -> bool:
        return self.group != "no" and not self.is_narrowed and self.sort == "newest"

    def link(self, **changes: str | None) -> str:
        """The address of this list with other values; from its first page on."""
        chosen = self.model_dump(exclude={"after"}, exclude_defaults=True) | changes
        given = {name: value for name, value in chosen.items() if value is not None}
        return f"/?{urlencode(given)}" if given else "/"


class Entry(NamedTuple):
    """One row: a job, or a study in the place of its trials."""

    job: models.JobSummary | None
    study: models.StudySummary | None


@router.get("/")
async def jobs(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    query: Annotated[PageQuery, Query()],
) -> Response:
    if _JOB_ID.fullmatch(query.search or ""):
        return RedirectResponse(f"/jobs/{query.search}", 303)
    if query.sort in ("highest", "lowest") and query.metric is None:
        query = query.model_copy(update={"sort": "newest"})
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        counts = await queries.jobs.count(connection, caller.tenant_id)
        num_held, num_slots = await queries.nodes.slots_in_use(connection)
        numbers = await badges(gateway, connection, caller)
    entries, more, num_searched = await _entries(gateway, caller.tenant_id, query, request)
    return page(
        request,
        "jobs.html",
        position=stream_position(stream),
        entries=entries,
        explain=explanations.explain,
        counts=counts,
        query=query,
        more=more and query.link(after=more),
        num_searched=num_searched,
        num_held=num_held,
        num_slots=num_slots,
        **numbers,
    )


async def _entries(
    gateway: Gateway, tenant_id: str, query: PageQuery, request: Request
) -> tuple[list[Entry], str | None, int | None]:
    """The rows of the page, the position of the next one, and how many jobs were searched."""
    base = base_url(request)
    if not query.is_grouped:
        found = await find_jobs(gateway, tenant_id, query.wanted(), query.after, JOBS_PER_PAGE)
        shown = [Entry(views.job_summary(row, base), None) for row in found.rows]
        return shown, next_text(found.next), found.num_searched
    found = await find_jobs_of_no_study(gateway, tenant_id, query.after, JOBS_PER_PAGE + 1)
    position = read_position(query.after, 2)
    after = (position[0], position[1][0]) if position else None
    async with gateway.platform.database.connection() as connection:
        studies = await queries.studies.page(connection, tenant_id, after, JOBS_PER_PAGE + 1)
    rows = sorted((*found.rows, *studies), key=_place, reverse=True)
    shown = [_entry(row, base) for row in rows[:JOBS_PER_PAGE]]
    if len(rows) <= JOBS_PER_PAGE:
        return shown, None, None
    return shown, next_text(At(*_place(rows[JOBS_PER_PAGE - 1]))), None


def _place(row: dict[str, Any]) -> tuple[datetime, str]:
    return row["listed_at"], row.get("job_id") or row["study_id"]


def _entry(row: dict[str, Any], base: str) -> Entry:
    if "job_id" in row:
        return Entry(views.job_summary(row, base), None)
    return Entry(None, views.study_summary(row, base))
