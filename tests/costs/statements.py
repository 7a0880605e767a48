"""Which statements a run sends, and how many rows each reads.

Each statement is executed twice: first as `explain (analyze)` in a transaction, or to a savepoint,
that is rolled back, then as it is. Rows read are those that its scans of tables and indexes return,
and those that they read and drop. A scan that finds none counts as one row: it was a search. Where
an index serves, the plan must use it, in joins too: of a small table the planner would rather read
all, and from which size on it would not depends on its statistics. So does whether it keeps what it
has read for the next row.

Its hooks are asyncpg's own methods below the pool, so every connection of the process is covered.
Only what the recording task and the tasks that it starts send is recorded: services under test have
tasks of their own that look for work now and then.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import asyncpg
from asyncpg.cursor import BaseCursor

EXPLAINABLE = ("select", "insert", "update", "delete", "with", "merge", "values")
BY_INDEX = "; ".join(
    f"set local enable_{name} = off"
    for name in ("seqscan", "hashjoin", "mergejoin", "material", "memoize")
)
DROPPED = ("Rows Removed by Filter", "Rows Removed by Index Recheck")

_execute = asyncpg.Connection._execute


@dataclass(frozen=True)
class Statements:
    """By statement: how often it was sent, and how many rows it read."""

    sent: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)

    async def add(self, connection: Any, query: str, arguments: Sequence[Any]) -> None:
        """Before it is executed."""
        if _recording.get() is not self:
            return
        self.sent[query] += 1
        if query.lstrip().lower().startswith(EXPLAINABLE):
            self.rows[query] += await _rows_read(connection, query, arguments)


_recording: ContextVar[Statements | None] = ContextVar("recording", default=None)


@contextmanager
def recorded() -> Iterator[Statements]:
    """Record every statement of this task and of those that it starts."""
    statements = Statements()
    with ExitStack() as stack:
        stack.callback(_recording.reset, _recording.set(statements))
        for owner, name, hook in _hooks(statements):
            stack.enter_context(patch.object(owner, name, hook(getattr(owner, name))))
        yield statements


def _hooks(statements: Statements) -> Iterator[tuple[type, str, Callable[[Any], Any]]]:
    """What is replaced, and by what: every way in which a statement reaches the protocol."""

    def prepared(original: Any) -> Any:
        async def call(connection: Any, query: str, arguments: Any, *rest: Any, **more: Any) -> Any:
            await statements.add(connection, query, arguments)
            return await original(connection, query, arguments, *rest, **more)

        return call

    def many(original: Any) -> Any:
        async def call(connection: Any, query: str, batch: Any, *rest: Any, **more: Any) -> Any:
            batch = list(batch)
            for arguments in batch:
                await statements.add(connection, query, arguments)
            return await original(connection, query, batch, *rest, **more)

        return call

    def plain(original: Any) -> Any:
        """With arguments it goes on to `_execute`."""

        async def call(connection: Any, query: str, *arguments: Any, **more: Any) -> Any:
            if not arguments:
                await statements.add(connection, query, ())
            return await original(connection, query, *arguments, **more)

        return call

    def cursor(original: Any) -> Any:
        async def call(self: Any, *rest: Any, **more: Any) -> Any:
            await statements.add(self._connection, self._query, self._args)
            return await original(self, *rest, **more)

        return call

    def copy(original: Any) -> Any:
        """Only that it was sent: it cannot be explained."""

        async def call(connection: Any, table: str, *rest: Any, **more: Any) -> Any:
            if _recording.get() is statements:
                statements.sent[f"copy {table}"] += 1
            return await original(connection, table, *rest, **more)

        return call

    yield asyncpg.Connection, "_execute", prepared
    yield asyncpg.Connection, "_executemany", many
    yield BaseCursor, "_bind_exec", cursor
    yield asyncpg.Connection, "execute", plain
    yield asyncpg.Connection, "copy_to_table", copy
    yield asyncpg.Connection, "copy_records_to_table", copy


async def _rows_read(connection: Any, query: str, arguments: Sequence[Any]) -> int:
    begin, end = (
        ("savepoint counted", "rollback to counted; release counted")
        if connection.is_in_transaction()
        else ("begin", "rollback")
    )
    await connection._protocol.query(f"{begin}; {BY_INDEX}", None)
    try:
        explain = f"explain (analyze, timing off, format json) {query}"
        ((found,),) = await _execute(connection, explain, arguments, 0, None)
    finally:
        await connection._protocol.query(end, None)
    (explained,) = json.loads(found)
    return _rows_of(explained["Plan"])


def _rows_of(node: dict[str, Any]) -> int:
    """Of this node and those below it. Counts of a node are averages of its loops."""
    rows = sum(_rows_of(child) for child in node.get("Plans", ()))
    # The scan of an index for a bitmap has no relation; the scan of the bitmap's rows has.
    if node["Node Type"].endswith("Scan") and "Relation Name" in node:
        read = node["Actual Rows"] + sum(node.get(name, 0) for name in DROPPED)
        rows += round(node["Actual Loops"] * max(1, read))
    return rows
