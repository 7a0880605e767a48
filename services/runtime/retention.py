"""How long the runtime's own tables keep their rows, and what removes them, in bounded steps.

| table | a row is kept | why that is enough |
|---|---|---|
| `inbox`, topics of pods | the topic's retention and 7 days | the record is gone by then |
| `inbox`, all other topics | 90 days | commands are kept 30; see below for what is kept for ever |
| `inbox_floor` | for ever | one row per partition |
| `outbox` | until it is acknowledged | deleted by the relay; what Kafka refuses, 90 days |
| `outbox_counter` | for ever | one row per key: its numbers may not start again |
| `sequence` | for ever | one row per key, as the projection's own rows |
| `parked_days` | for ever | one row per topic |
| `crash_watch`, `rewound` | for ever | one row per group and partition |

Heartbeats, samples and logs have no inbox row: their handlers are idempotent by their own keys.

A record of a topic that is kept for ever can be read again at any time: a group whose offsets are
lost starts at the earliest record. So before inbox rows are deleted, `inbox_floor` notes how far
each partition was handled: a record before that offset, appended before that time, was handled. (A
topic that was deleted and created again has small offsets, but later times; `CLOCK_MARGIN` is for a
broker whose clock is ahead of Postgres's, and far less than the time a row is kept.) A record that
appears again at a *later* offset is a replay of a parked record, or a row that the relay sends
again: the first is refused after half of that time (`replay_refusal`), the second happens within an
outage.

A service adds rules for its own tables (`Service.retention`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from drivetrain_schemas.topics import TOPICS, Topic
from services.runtime import logs
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.instruments import PRUNED
from services.runtime.repeating import repeat

log = logs.get()

KEEP = timedelta(days=90)
# Topics that pods write: many records, each kept for a short time.
MARGIN = timedelta(days=7)
CLOCK_MARGIN = timedelta(days=1)
PASS_SECONDS = 600.0
STEP_SECONDS = 0.05
STEP_ROWS = 5_000

_PRUNE_INBOX = """
with pruned as (
    delete from inbox where ctid = any(array(
        select ctid from inbox
        where topic = $1 and handled_at < statement_timestamp() - $2::interval
        order by handled_at limit $3))
    returning partition, "offset", handled_at),
floor as (
    insert into inbox_floor (topic, partition, "offset", handled_until)
    select $1, partition, max("offset") + 1, max(handled_at) from pruned group by partition
    on conflict (topic, partition) do update set
        "offset" = greatest(inbox_floor."offset", excluded."offset"),
        handled_until = greatest(inbox_floor.handled_until, excluded.handled_until))
select count(*) from pruned
"""
_PRUNE_REFUSED = """
with pruned as (
    delete from outbox where id = any(array(
        select id from outbox where refused_at < statement_timestamp() - $1::interval
        order by refused_at limit $2))
    returning id)
select count(*) from pruned
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows of `table` last for `keep`.

    `statement` deletes rows that are older than $1 (an interval), at most $2 of them.
    """

    table: str
    keep: timedelta
    statement: str


def inbox_keep(topic: Topic) -> timedelta:
    """How long an inbox row of an event on this topic is kept."""
    retention = timedelta(milliseconds=topic.retention_ms)
    return retention + MARGIN if timedelta(0) < retention <= MARGIN else KEEP


def replay_refusal(topic_name: str, parked_at: datetime, now: datetime) -> str | None:
    """Why a record of this topic (full name) can no longer be replayed; None where it can.

    A service that handled it may have forgotten that it did. The limit is half of what the inbox
    keeps: a record may be parked as late as the other half.
    """
    topics = (topic for topic in TOPICS if topic_name.endswith(topic.name))
    limit = max((inbox_keep(topic) for topic in topics), default=KEEP) / 2
    if now - parked_at <= limit:
        return None
    return (
        f"it was parked over {limit.days} days ago, and a service that handled it then "
        "may no longer have a record of that"
    )


class Retention:
    """Prunes the tables of one service until cancelled."""

    def __init__(
        self, database: Database, topic_prefix: str, clock: Clock, rules: Sequence[Rule] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._rules = rules
        self._keep = {topic_prefix + topic.name: inbox_keep(topic) for topic in TOPICS}

    async def run(self) -> None:
        await repeat(self.prune, self._clock, PASS_SECONDS, "pruning waits for Postgres")

    async def prune(self) -> None:
        """One pass: delete every row that may be deleted."""
        for topic, keep in self._keep.items():
            await self._in_steps("inbox", _PRUNE_INBOX, topic, keep)
        await self._in_steps("outbox", _PRUNE_REFUSED, KEEP)
        for rule in self._rules:
            counted = f"with pruned as ({rule.statement} returning 1) select count(*) from pruned"
            await self._in_steps(rule.table, counted, rule.keep)

    async def _in_steps(self, table: str, statement: str, *arguments: object) -> None:
        """Short transactions with a pause after each, so that handlers are not delayed."""
        while True:
            async with self._database.connection() as connection:
                num_rows = await _count(connection, statement, *arguments)
            if num_rows:
                PRUNED.labels(table).inc(num_rows)
                log.info("rows pruned", table=table, rows=num_rows)
            if num_rows < STEP_ROWS:
                return
            await self._clock.sleep(STEP_SECONDS)


async def _count(connection: asyncpg.Connection, statement: str, *arguments: object) -> int:
    return int(await connection.fetchval(statement, *arguments, STEP_ROWS))
