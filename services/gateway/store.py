"""Reads and writes views as rows: one statement to load those of a noun, one to save them.

A view's fields are the columns of its table; a column's type follows from the field's annotation.
"""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, Protocol, get_args, get_type_hints

import asyncpg

from drivetrain_schemas.envelope import Event

Connection = asyncpg.Connection
Key = tuple[Any, ...]

_TYPES: Mapping[type, str] = {
    str: "text",
    int: "bigint",
    float: "double precision",
    bool: "boolean",
    datetime: "timestamptz",
}


class Stored(Hashable, Protocol):
    """A kind of view, its table, and the columns that identify a row."""

    @property
    def table(self) -> str: ...
    @property
    def view(self) -> type: ...
    @property
    def key(self) -> tuple[str, ...]: ...


async def load(connection: Connection, kind: Stored, keys: Iterable[Key]) -> dict[Key, Any]:
    """The views that exist of these."""
    rows = await connection.fetch(_select(kind), *map(list, zip(*keys, strict=True)))
    views = (kind.view(*row.values()) for row in rows)
    return {tuple(getattr(view, name) for name in kind.key): view for view in views}


async def save(connection: Connection, kind: Stored, views: Sequence[Any]) -> None:
    """Insert these views, or replace those that exist."""
    columns = [
        [_encoded(type_, getattr(view, name)) for view in views]
        for name, type_ in _columns(kind.view).items()
    ]
    await connection.execute(_upsert(kind), *columns)


async def advance(connection: Connection, number: int) -> int:
    """Draw this many cursors and return the last one. The row stays locked until the commit.

    So one batch at a time commits across all processes, and cursors become visible in order.
    """
    last: int = await connection.fetchval(
        "update stream set last_cursor = last_cursor + $1 returning last_cursor", number
    )
    return last


async def insert_timeline(
    connection: Connection, first_cursor: int, events: Sequence[Event[Any]]
) -> None:
    payloads = [event.payload for event in events]
    subjects = ("job_id", "study_id", "node_id")
    await connection.execute(
        """
        insert into timeline (cursor, source, event_id, type, tenant_id, job_id, study_id, node_id,
            occurred_at, seq, payload)
        select $1 + place - 1, source, event_id, type, tenant_id, job_id, study_id, node_id,
            occurred_at, seq, payload::jsonb
        from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::timestamptz[], $10::bigint[], $11::text[]) with ordinality
            as new (source, event_id, type, tenant_id, job_id, study_id, node_id,
                occurred_at, seq, payload, place)
        """,
        first_cursor,
        [event.source for event in events],
        [event.event_id for event in events],
        [event.type for event in events],
        [event.tenant_id for event in events],
        *([getattr(it, name, None) for it in payloads] for name in subjects),
        [event.occurred_at for event in events],
        [event.seq or 0 for event in events],
        [payload.model_dump_json(exclude_none=True) for payload in payloads],
    )


@cache
def _columns(view: type) -> Mapping[str, str]:
    """The columns of a view and their types, in the order of its fields."""
    hints = get_type_hints(view)
    return {field.name: _type(hints[field.name]) for field in fields(view)}


def _type(hint: Any) -> str:
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return _TYPES.get(parts[0], "jsonb")


@cache
def _select(kind: Stored) -> str:
    columns = _columns(kind.view)
    keys = ", ".join(f"${at}::{columns[name]}[]" for at, name in enumerate(kind.key, start=1))
    names = ", ".join(kind.key)
    return (
        f"select {', '.join(columns)} from {kind.table} "
        f"join unnest({keys}) as wanted ({names}) using ({names})"
    )


def _encoded(type_: str, value: Any) -> Any:
    """asyncpg would take a list for another dimension of the array."""
    return json.dumps(value) if type_ == "jsonb" and value is not None else value


@cache
def _upsert(kind: Stored) -> str:
    columns = _columns(kind.view)
    sent = ["text" if type_ == "jsonb" else type_ for type_ in columns.values()]
    values = ", ".join(f"${at}::{type_}[]" for at, type_ in enumerate(sent, start=1))
    names = ", ".join(columns)
    cast = ", ".join(f"{name}::{type_}" for name, type_ in columns.items())
    others = [f"{name} = excluded.{name}" for name in columns if name not in kind.key]
    return (
        f"insert into {kind.table} ({names}) "
        f"select {cast} from unnest({values}) as new ({names}) "
        f"on conflict ({', '.join(kind.key)}) do update set {', '.join(others)}"
    )
