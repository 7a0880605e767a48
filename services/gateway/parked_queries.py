"""Reads of parked records: lists by filter, groups with their counts, one record with its bytes.

A list continues after a position (parked_at, parked_id), newest first, within a tenant and a state.
A filter selects groups first, of which there are few; then each group's index is read from that
position, so that the cost of a page follows its length and not how many records were ever parked.
"""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from services.gateway.core.parked import ParkedState
from services.gateway.queries.rows import Connection, Position, Row

MAX_GROUPS = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """A tenant's records of one state that match all that is given; `since` and `until` are
    inclusive."""

    tenant_id: str
    state: ParkedState = ParkedState.OPEN
    service: str | None = None
    topic: str | None = None
    reason: str | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def has_group(self) -> bool:
        return any((self.service, self.topic, self.reason, self.event_type is not None))


_COLUMNS = """parked_id, service, topic, reason, event_type, detail, state, partition, "offset",
    parked_at, replayed_at, decided_at, decision_note, cardinality(places) as num_parkings,
    coalesce(omitted_bytes, length(value), 0) as size_bytes, omitted_bytes is not null as is_omitted
"""
_IN_RANGE = """
    ($3::timestamptz is null or (parked_at, parked_id) < ($3, $4))
    and ($5::timestamptz is null or parked_at >= $5)
    and ($6::timestamptz is null or parked_at <= $6) and tenant_id = $7
order by parked_at desc, parked_id desc limit $2
"""
_ALL = f"""
select {_COLUMNS} from parked where state = $1 and parked_at is not null and {_IN_RANGE}
"""
_BY_GROUP = f"""
select {_COLUMNS} from (
    select found.* from (
        select * from parked_groups
        where tenant_id = $7
            and ($8::text is null or service = $8) and ($9::text is null or topic = $9)
            and ($10::text is null or reason = $10) and ($11::text is null or event_type = $11)
        limit {MAX_GROUPS}
    ) as g cross join lateral (
        select * from parked as p
        where p.service = g.service and p.topic = g.topic and p.reason = g.reason
            and p.event_type = g.event_type and state = $1 and parked_at is not null
            and {_IN_RANGE}
    ) as found
) as merged order by parked_at desc, parked_id desc limit $2
"""


async def parked(
    connection: Connection, wanted: Selection, after: Position | None, limit: int
) -> list[Row]:
    """Newest first, without the bytes."""
    position = after or (None, None)
    within = (wanted.since, wanted.until, wanted.tenant_id)
    common = (wanted.state.value, limit, *position, *within)
    if wanted.has_group:
        names = (wanted.service, wanted.topic, wanted.reason, wanted.event_type)
        rows = await connection.fetch(_BY_GROUP, *common, *names)
    else:
        rows = await connection.fetch(_ALL, *common)
    return [_row(row) for row in rows]


async def groups(connection: Connection, tenant_id: str, state: ParkedState) -> list[Row]:
    """The tenant's groups that have records of this state, the largest first."""
    number = f"num_{state.value}"
    rows = await connection.fetch(
        f"""
        select service, topic, reason, event_type, {number} as num_records from parked_groups
        where tenant_id = $1 and {number} > 0
        order by {number} desc, service, topic, reason, event_type limit {MAX_GROUPS}
        """,
        tenant_id,
    )
    return [dict(row) for row in rows]


async def count_open(connection: Connection, tenant_id: str | None = None) -> int:
    """How many wait for a decision, of a tenant or of all."""
    number: int = await connection.fetchval(
        """
        select coalesce(sum(num_open), 0)::bigint from parked_groups
        where $1::text is null or tenant_id = $1
        """,
        tenant_id,
    )
    return number


async def record(connection: Connection, tenant_id: str, parked_id: str) -> Row | None:
    """With its bytes."""
    found = await records(connection, tenant_id, [parked_id])
    return found[0] if found else None


async def records(connection: Connection, tenant_id: str, parked_ids: list[str]) -> list[Row]:
    """Those of the tenant with their bytes, in the order of the ids given."""
    rows = await connection.fetch(
        f"""
        select {_COLUMNS}, key, value, header_names, header_values, omitted_bytes
        from parked
        where parked_id = any($1) and parked_at is not null and tenant_id = $2
        """,
        parked_ids,
        tenant_id,
    )
    by_id = {row["parked_id"]: _row(row) for row in rows}
    return [by_id[parked_id] for parked_id in parked_ids if parked_id in by_id]


async def is_decided(connection: Connection, parked_id: str, num_parkings: int) -> bool:
    """True once a decision about at least this many parkings is in the read model."""
    found = await connection.fetchval(
        "select true from parked where parked_id = $1 and decision_num_parkings >= $2",
        parked_id,
        num_parkings,
    )
    return bool(found)


def _row(row: asyncpg.Record) -> Row:
    found = dict(row)
    found["has_failed_again"] = found["state"] == "open" and found["replayed_at"] is not None
    return found
