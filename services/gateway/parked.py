"""The projection of parked records from `parked.*` and `events.parked`.

Counters per group (tenant, service, topic, reason, event type) are kept with each change, so that
no page counts rows. What became of a record is folded by `core/parked.py`; any order of the two
sources gives the same rows.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import DEFAULT_TENANT, digest_id
from drivetrain_schemas.parked import ParkedDiscarded, ParkedRecord, ParkedReplayed
from drivetrain_schemas.registry import all_kinds
from drivetrain_schemas.topics import PARKED_DAYS
from services.gateway.core.parked import (
    Decision,
    Handling,
    ParkedState,
    decided,
    parked_at_place,
)
from services.gateway.core.storable import storable_text
from services.runtime.bus import Record
from services.runtime.parking import HEADER
from services.runtime.retention import Rule
from services.runtime.transaction import Tx

Connection = asyncpg.Connection

# Far above what services write, but records from elsewhere must fit into the index too.
MAX_NAME_CHARACTERS = 64
MAX_TOPIC_CHARACTERS = 249
_TENANT_ID = re.compile("[a-z0-9][a-z0-9_-]{0,62}")
_PARKED_ID = re.compile("[!-~]{1,128}")
_KNOWN_TYPES = frozenset(type_name for type_name, _ in all_kinds())


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """The fields by which parked records are counted."""

    tenant_id: str
    service: str
    topic: str
    reason: str
    event_type: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What is stored of a record; `group` and `parked_at` are None while only decided about."""

    group: Group | None
    parked_at: datetime | None
    handling: Handling


@dataclass(frozen=True, slots=True)
class _Parking:
    """One record of a `parked.*` topic."""

    parked_id: str
    group: Group
    parked_at: datetime
    place: str
    content: tuple[Any, ...]


async def on_parked(tx: Tx, records: Sequence[Record]) -> None:
    """A record is parked again under its id where a replay failed; the latest reason is shown."""
    parkings = [_parking(record) for record in records]
    before = await _lock(tx.connection, {one.parked_id for one in parkings})
    after = dict(before)
    newest: dict[str, _Parking] = {}
    for one in parkings:
        known = after[one.parked_id]
        handling = parked_at_place(known.handling, one.place)
        if known.parked_at is None or known.parked_at < one.parked_at:
            newest[one.parked_id] = one
            known = replace(known, group=one.group, parked_at=one.parked_at)
        after[one.parked_id] = replace(known, handling=handling)
    await tx.connection.executemany(_SET_CONTENT, [_content(one) for one in newest.values()])
    await _save(tx.connection, before, after)


async def on_decisions(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """Handles `parked.replayed` and `parked.discarded`; ignores all other events."""
    decisions = [
        (one.parked_id, decision) for event in events for one, decision in _decisions(event.payload)
    ]
    if not decisions:
        return
    before = await _lock(tx.connection, {parked_id for parked_id, _ in decisions})
    after = dict(before)
    for parked_id, decision in decisions:
        known = after[parked_id]
        after[parked_id] = replace(known, handling=decided(known.handling, decision))
    await _save(tx.connection, before, after)


def _decisions(payload: Payload) -> Iterator[tuple[ParkedRecord, Decision]]:
    if isinstance(payload, ParkedReplayed):
        for one in payload.records:
            yield one, Decision(one.num_parkings, payload.decided_at, ParkedState.REPLAYED)
    elif isinstance(payload, ParkedDiscarded):
        for one in payload.records:
            state, at = ParkedState.DISCARDED, payload.decided_at
            yield one, Decision(one.num_parkings, at, state, payload.note)


_SET_CONTENT = """
update parked set tenant_id = $2, service = $3, topic = $4, reason = $5, event_type = $6,
    parked_at = $7, detail = $8, partition = $9, "offset" = $10, key = $11, value = $12,
    header_names = $13, header_values = $14, omitted_bytes = $15
where parked_id = $1
"""
_SET_HANDLING = """
update parked set state = $2, places = $3, decision_state = $4, decision_num_parkings = $5,
    decided_at = $6, decision_note = $7, replayed_at = $8
where parked_id = $1
"""
# As long as its topic keeps the record. A trigger counts what is deleted.
PARKED_RULE = Rule(
    "parked",
    timedelta(days=PARKED_DAYS),
    """delete from parked where ctid = any(array(
        select ctid from parked
        where parked_at at time zone 'UTC'
            < (statement_timestamp() - $1::interval) at time zone 'UTC'
        order by parked_at at time zone 'UTC' limit $2))""",
)
_ADD_TO_GROUP = """
insert into parked_groups as g
    (tenant_id, service, topic, reason, event_type, num_open, num_replayed, num_discarded)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (tenant_id, service, topic, reason, event_type) do update set
    num_open = g.num_open + excluded.num_open,
    num_replayed = g.num_replayed + excluded.num_replayed,
    num_discarded = g.num_discarded + excluded.num_discarded
"""


async def _lock(connection: Connection, parked_ids: Collection[str]) -> dict[str, _Known]:
    """What is known of each, locked in the order of ids until the transaction ends."""
    ordered = sorted(parked_ids)
    await connection.execute(
        "insert into parked (parked_id) select unnest($1::text[]) on conflict do nothing", ordered
    )
    rows = await connection.fetch(
        """
        select parked_id, tenant_id, service, topic, reason, event_type, parked_at, places,
            decision_state, decision_num_parkings, decided_at, decision_note, replayed_at
        from parked where parked_id = any($1) order by parked_id for update
        """,
        ordered,
    )
    return {row["parked_id"]: _known(row) for row in rows}


def _known(row: asyncpg.Record) -> _Known:
    group = None
    if row["parked_at"] is not None:
        names = ("tenant_id", "service", "topic", "reason", "event_type")
        group = Group(*(row[name] for name in names))
    decision = None
    if row["decision_state"] is not None:
        state = ParkedState(row["decision_state"])
        number, note = row["decision_num_parkings"], row["decision_note"]
        decision = Decision(number, row["decided_at"], state, note)
    handling = Handling(frozenset(row["places"]), decision, row["replayed_at"])
    return _Known(group, row["parked_at"], handling)


async def _save(
    connection: Connection, before: Mapping[str, _Known], after: Mapping[str, _Known]
) -> None:
    """The changed rows, and the counters of their groups."""
    changes: Counter[tuple[Group, ParkedState]] = Counter()
    rows = []
    for parked_id in sorted(after):
        old, new = before[parked_id], after[parked_id]
        if old.group is not None:
            changes[old.group, old.handling.state] -= 1
        if new.group is not None:
            changes[new.group, new.handling.state] += 1
        if old.handling != new.handling:
            rows.append((parked_id, *_handling(new.handling)))
    await connection.executemany(_SET_HANDLING, rows)
    groups = sorted({group for (group, _), number in changes.items() if number})
    await connection.executemany(
        _ADD_TO_GROUP,
        [(*astuple(group), *(changes[group, state] for state in ParkedState)) for group in groups],
    )


def _handling(handling: Handling) -> tuple[Any, ...]:
    decision = handling.decision
    of_decision: tuple[Any, ...] = (None, None, None, "")
    if decision is not None:
        of_decision = (
            decision.state.value,
            decision.num_parkings,
            decision.decided_at,
            decision.note,
        )
    return (handling.state.value, sorted(handling.places), *of_decision, handling.replayed_at)


def _content(one: _Parking) -> tuple[Any, ...]:
    return (one.parked_id, *astuple(one.group), one.parked_at, *one.content)


def _parking(record: Record) -> _Parking:
    """From the record's x-parked-* headers; what they lack is taken from the record itself."""
    facts = {
        name.removeprefix(HEADER): storable_text((value or b"").decode("utf-8", "replace"))
        for name, value in record.headers
        if name.startswith(HEADER)
    }
    own = [(name, value) for name, value in record.headers if not name.startswith(HEADER)]
    here = (record.topic, str(record.partition), str(record.offset))
    parked_id = facts.get("id", "")
    if not _PARKED_ID.fullmatch(parked_id):
        parked_id = f"parked_{digest_id('gateway', *here)}"
    origin = (facts.get("topic", ""), facts.get("partition", ""), facts.get("offset", ""))
    type_name = next((value or b"" for name, value in own if name == "ce_type"), b"").decode(
        "utf-8", "replace"
    )
    tenant_id = facts.get("tenant", "")
    group = Group(
        tenant_id=tenant_id if _TENANT_ID.fullmatch(tenant_id) else DEFAULT_TENANT,
        service=(facts.get("service") or record.topic.rpartition(".")[2])[:MAX_NAME_CHARACTERS],
        topic=origin[0][:MAX_TOPIC_CHARACTERS],
        reason=facts.get("reason", "unknown")[:MAX_NAME_CHARACTERS],
        event_type=type_name if type_name in _KNOWN_TYPES else "",
    )
    content = (
        facts.get("detail", ""),
        _whole(facts.get("partition")),
        _whole(facts.get("offset")),
        record.key,
        record.value,
        [storable_text(name) for name, _ in own],
        [value for _, value in own],
        _whole(facts.get("omitted")),
    )
    place = "/".join(origin if all(origin) else here)[:512]
    return _Parking(parked_id, group, _time(facts.get("at"), record), place, content)


def _time(text: str | None, record: Record) -> datetime:
    """The time of parking; the broker's where it is invalid."""
    try:
        moment = datetime.fromisoformat(text or "")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return record.appended_at


def _whole(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text)
