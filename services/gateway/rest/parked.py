"""Routes about parked records: lists, groups, one record; replay and discard, of one or many."""

from datetime import UTC
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from drivetrain_schemas.base import Strict, UtcTime
from drivetrain_schemas.parked import Note, ParkedId
from services.gateway import parked_commands, parked_queries
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.core.parked import ParkedState
from services.gateway.parked_commands import REPLAY, Choice
from services.gateway.parked_queries import Selection
from services.gateway.problem import not_found
from services.gateway.queries.rows import Position, Row
from services.gateway.rest import models, views
from services.gateway.rest.jobs import Limit
from services.gateway.rest.positions import position_text, read_position
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1/parked", tags=["parked"])

Name = Annotated[str, Field(max_length=249)]
After = Annotated[str, Field(max_length=512)]


class ParkedFilter(Strict):
    """Which records. `topic` with or without the platform's prefix; `since` and `until` inclusive.

    An empty `type` stands for records that name no known event type.
    """

    service: Name | None = None
    topic: Name | None = None
    reason: Name | None = None
    type: Name | None = None
    since: UtcTime | None = None
    until: UtcTime | None = None

    def selection(
        self, gateway: Gateway, caller: Caller, state: ParkedState = ParkedState.OPEN
    ) -> Selection:
        prefix, topic = gateway.settings.topic_prefix, self.topic or None
        if topic is not None and not topic.startswith(prefix):
            topic = prefix + topic
        names = (self.service, topic, self.reason, self.type)
        return Selection(caller.tenant_id, state, *names, self.since, self.until)


class ParkedQuery(ParkedFilter):
    state: ParkedState = ParkedState.OPEN
    limit: Limit = 50
    after: After | None = None


class ReplayParked(ParkedFilter):
    """All open records that match are replayed; no field at all matches every one."""

    after: After | None = None


class DiscardParked(ParkedFilter):
    """All open records that match are discarded; no field at all matches every one."""

    after: After | None = None
    note: Note = ""


class DiscardOne(Strict):
    note: Note = ""


@router.get("", responses=answers(422))
async def list_parked(
    gateway: GatewayDep, caller: CallerDep, query: Annotated[ParkedQuery, Query()]
) -> models.ParkedList:
    """Records of one state, newest first."""
    rows, more = await find_parked(
        gateway, query.selection(gateway, caller, query.state), query.after, query.limit
    )
    return models.ParkedList(records=[views.parked_summary(row) for row in rows], next=more)


@router.get("/groups", responses=answers(422))
async def parked_groups(
    gateway: GatewayDep, caller: CallerDep, state: ParkedState = ParkedState.OPEN
) -> models.ParkedGroups:
    """How many records share service, topic, reason and event type, the largest group first."""
    async with gateway.platform.database.connection() as connection:
        rows = await parked_queries.groups(connection, caller.tenant_id, state)
    return models.ParkedGroups(groups=[models.ParkedGroup(**row) for row in rows])


@router.post("/replay", status_code=202, responses=answers(400, 413, 415, 422))
async def replay_all(
    body: ReplayParked, gateway: GatewayDep, caller: CallerDep
) -> models.ParkedDecision:
    """Publish matching records again on their topics, newest first, for at most 10 s."""
    return await decide_all(gateway, caller, body, REPLAY, body.after)


@router.post("/discard", status_code=202, responses=answers(400, 413, 415, 422))
async def discard_all(
    body: DiscardParked, gateway: GatewayDep, caller: CallerDep
) -> models.ParkedDecision:
    """Take matching records off the list, newest first, for at most 10 s. They stay readable."""
    choice = Choice(ParkedState.DISCARDED, body.note)
    return await decide_all(gateway, caller, body, choice, body.after)


@router.get("/{parked_id}", responses=answers(404, 422))
async def get_parked(
    parked_id: ParkedId, gateway: GatewayDep, caller: CallerDep
) -> models.ParkedRecord:
    """With its original bytes."""
    return views.parked_record(await find_record(gateway, caller, parked_id))


@router.post(
    "/{parked_id}/replay",
    status_code=202,
    responses=answers(400, 404, 409, 413, 415, 422),
)
async def replay(parked_id: ParkedId, gateway: GatewayDep, caller: CallerDep) -> models.Accepted:
    """Publish the record again on its topic, with its own id: services that handled it drop it."""
    row = await find_record(gateway, caller, parked_id)
    is_confirmed = await parked_commands.decide_one(gateway, caller.tenant_id, row, REPLAY)
    return models.Accepted(is_confirmed=is_confirmed)


@router.post("/{parked_id}/discard", status_code=202, responses=answers(400, 404, 413, 415, 422))
async def discard(
    parked_id: ParkedId, gateway: GatewayDep, caller: CallerDep, body: DiscardOne | None = None
) -> models.Accepted:
    """Take the record off the list. It stays readable, and can still be replayed."""
    row = await find_record(gateway, caller, parked_id)
    choice = Choice(ParkedState.DISCARDED, body.note if body else "")
    is_confirmed = await parked_commands.decide_one(gateway, caller.tenant_id, row, choice)
    return models.Accepted(is_confirmed=is_confirmed)


async def find_parked(
    gateway: Gateway, wanted: Selection, after: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """The records, and the position of the next page."""
    async with gateway.platform.database.connection() as connection:
        rows = await parked_queries.parked(connection, wanted, _position(after), limit + 1)
    more = None
    if len(rows) > limit:
        more = position_text(rows[limit - 1]["parked_at"], rows[limit - 1]["parked_id"])
    return rows[:limit], more


async def find_record(gateway: Gateway, caller: Caller, parked_id: str) -> Row:
    async with gateway.platform.database.connection() as connection:
        row = await parked_queries.record(connection, caller.tenant_id, parked_id)
    if row is None:
        raise not_found("parked record", parked_id)
    return row


async def decide_all(
    gateway: Gateway, caller: Caller, wanted: ParkedFilter, choice: Choice, after: str | None
) -> models.ParkedDecision:
    selection = wanted.selection(gateway, caller)
    outcome = await parked_commands.decide_all(gateway, selection, choice, _position(after))
    return models.ParkedDecision(
        num_records=outcome.num_records,
        num_skipped=outcome.num_skipped,
        next=position_text(*outcome.next) if outcome.next else None,
        is_confirmed=outcome.is_confirmed,
    )


def _position(after: str | None) -> Position | None:
    position = read_position(after, 2)
    return (position[0].astimezone(UTC), position[1][0]) if position else None
