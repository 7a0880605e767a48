"""Pages of parked records: groups to choose from, the list of one choice, one record.

The buttons for all matching records carry the filter in their address, bounded by the newest record
that the page showed: the decision does not cover what was parked later.
"""

from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, RedirectResponse, Response

from drivetrain_schemas.parked import ParkedId
from services.gateway import parked_commands, parked_queries, queries
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.core.parked import ParkedState
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page, stream_position
from services.gateway.parked_commands import REPLAY, Choice
from services.gateway.rest import views
from services.gateway.rest.parked import (
    ParkedFilter,
    ParkedQuery,
    decide_all,
    find_parked,
    find_record,
)

router = APIRouter(prefix="/parked", include_in_schema=False)

ROWS_PER_PAGE = 50
Choices = Literal["replay", "discard"]
_CHOICES = {"replay": REPLAY, "discard": Choice(ParkedState.DISCARDED)}


class PageQuery(ParkedQuery):
    """`decided` and `skipped` come from the redirect after a decision; `more`: there are more."""

    decided: Annotated[int | None, Field(ge=0)] = None
    skipped: Annotated[int, Field(ge=0)] = 0
    more: bool = False


@router.get("")
async def parked(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    query: Annotated[PageQuery, Query()],
) -> HTMLResponse:
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        groups = await parked_queries.groups(connection, caller.tenant_id, query.state)
        numbers = await badges(gateway, connection, caller)
    selection = query.selection(gateway, caller, query.state)
    rows, more = await find_parked(gateway, selection, query.after, ROWS_PER_PAGE)
    chosen = _chosen(query)
    bounded = chosen | ({"until": rows[0]["parked_at"].isoformat()} if rows else {})
    return page(
        request,
        "parked.html",
        position=stream_position(stream),
        query=query,
        chosen=chosen,
        groups=groups,
        group_link=_group_link,
        records=[views.parked_summary(row) for row in rows],
        num_matching=sum(row["num_records"] for row in groups if _matches(row, chosen)),
        older=urlencode({**chosen, "state": query.state, "after": more}) if more else None,
        decide=urlencode(bounded),
        **numbers,
    )


@router.post("/{choice}")
async def decide_matching(
    choice: Choices, gateway: GatewayDep, caller: CallerDep, query: Annotated[ParkedFilter, Query()]
) -> Response:
    """All open records that match; for as long as one request may take."""
    done = await decide_all(gateway, caller, query, _CHOICES[choice], None)
    result = {
        "decided": done.num_records,
        "skipped": done.num_skipped,
        "more": done.next is not None,
    }
    return RedirectResponse(f"/parked?{urlencode(_chosen(query) | result)}", 303)


@router.get("/{parked_id}")
async def parked_record(
    parked_id: ParkedId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> HTMLResponse:
    record = views.parked_record(await find_record(gateway, caller, parked_id))
    async with gateway.platform.database.connection() as connection:
        numbers = await badges(gateway, connection, caller)
    return page(request, "parked_record.html", record=record, **numbers)


@router.post("/{parked_id}/{choice}")
async def decide_one(
    parked_id: ParkedId, choice: Choices, gateway: GatewayDep, caller: CallerDep
) -> Response:
    row = await find_record(gateway, caller, parked_id)
    await parked_commands.decide_one(gateway, caller.tenant_id, row, _CHOICES[choice])
    return RedirectResponse(f"/parked/{parked_id}", 303)


def _chosen(query: ParkedFilter) -> dict[str, str]:
    """The filter as it was given, without what a page adds."""
    given = query.model_dump(mode="json", include={"service", "topic", "reason", "type", "since"})
    return {name: value for name, value in given.items() if value is not None}


def _matches(group: dict[str, object], chosen: dict[str, str]) -> bool:
    values = {**group, "type": group["event_type"]}
    return all(values.get(name, value) == value for name, value in chosen.items())


def _group_link(group: dict[str, str], state: ParkedState) -> str:
    names = {name: group[name] for name in ("service", "topic", "reason")}
    return "/parked?" + urlencode({**names, "type": group["event_type"], "state": state})
