"""What the worker asks again and again costs what is due, not what has ever been.

On tables with a long history: no statement that runs periodically reads a table from end to end,
nor more rows than it returns a small multiple of.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from services.checkpoints import store, store_checkpoints, store_intents
from services.checkpoints.core.retention import Policy
from services.checkpoints.store import Job
from tests.conftest import OpenDatabase
from tests.handlers.checkpoints.builders import JOB, key_of

NUM_ROWS = 200_000
MAX_ROWS_READ = 2_000

HISTORY = f"""
insert into jobs (job_id, tenant_id, keep_last, keep_best)
select 'job_' || n, 'default', 3, 1 from generate_series(1, 2000) n;
insert into runs (run_id, job_id, attempt, fence, is_live, ended_at)
    select 'run_' || n, 'job_' || n % 2000, n, n, false, now() - n * interval '1 second'
    from generate_series(1, {NUM_ROWS}) n;
insert into checkpoints (checkpoint_id, job_id, manifest_key, run_id, attempt, fence, step, state,
        read_at, changed_at)
    select 'ckpt_' || n, case when n % 2 = 0 then '{JOB}' else 'job_' || n % 2000 end, 'key_' || n,
        'run_1', 1, 1, n, case when n % 100 = 1 then 'good' else 'deleted' end,
        now() - n * interval '1 second', now() - n * interval '1 second'
    from generate_series(1, {NUM_ROWS}) n;
insert into intents (kind, job_id, subject, due_at)
    select case when n % 2 = 0 then 'read' else 'verify' end, 'job_' || n % 2000, 'key_' || n,
        now() - (n - {NUM_ROWS} / 2) * interval '1 second'
    from generate_series(1, {NUM_ROWS}) n;
insert into read_shards select 'key_' || n, 'rank-0' from generate_series(1, {NUM_ROWS}) n;
analyze;
"""
Statement = Callable[[asyncpg.Connection], Awaitable[Any]]
KNOWN = Job(JOB, "default", Policy(keep_last=3, keep_best=1, goal=None), None, 1)

STATEMENTS: dict[str, Statement] = {
    "work due": lambda c: store_intents.due_intents(c, is_read=False, busy_jobs=["job_1"], limit=4),
    "reads due": lambda c: store_intents.due_intents(c, is_read=True, busy_jobs=["job_1"], limit=2),
    "any reads": store_intents.has_reads,
    "known of a listing": lambda c: store_checkpoints.states_of(c, [key_of(n) for n in range(9)]),
    "good rows of a job": lambda c: store_checkpoints.rows_in_state(c, JOB, "good"),
    "good of a job": lambda c: store_checkpoints.good(c, KNOWN),
    "rejected of a job": lambda c: store_checkpoints.rejected_long_ago(c, JOB, 60.0),
    "live run": lambda c: store.live_run(c, JOB),
    "read longest ago": lambda c: store_checkpoints.read_longest_ago(c, 86400.0),
    "read shards": lambda c: store_checkpoints.read_shards(c, "key_7"),
    "prune deleted": lambda c: store_checkpoints.prune_deleted(c, 86400.0, 100),
    "prune runs": lambda c: store.prune_runs(c, 86400.0, 100),
    "nothing to read again": lambda c: store_checkpoints.read_longest_ago(c, 1e9),
    "nothing deleted to prune": lambda c: store_checkpoints.prune_deleted(c, 1e9, 100),
    "no runs to prune": lambda c: store.prune_runs(c, 1e9, 100),
    "failing runs": store.count_failing_runs,
}


class Explaining:
    """A connection that notes the plan of each statement and what it actually read."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.plans: list[dict[str, Any]] = []

    async def fetch(self, statement: str, *arguments: Any) -> Any:
        return await self._explained(self._connection.fetch, statement, *arguments)

    async def fetchrow(self, statement: str, *arguments: Any) -> Any:
        return await self._explained(self._connection.fetchrow, statement, *arguments)

    async def fetchval(self, statement: str, *arguments: Any) -> Any:
        return await self._explained(self._connection.fetchval, statement, *arguments)

    async def _explained(self, call: Any, statement: str, *arguments: Any) -> Any:
        explain = f"explain (analyze, timing off, format json) {statement}"
        (plan,) = json.loads(await self._connection.fetchval(explain, *arguments))
        self.plans.append(plan["Plan"])
        return await call(statement, *arguments)


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan] + [node for child in plan.get("Plans", ()) for node in nodes(child)]


def rows_read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0)
    return float(node["Actual Rows"] + removed) * float(node["Actual Loops"])


async def test_a_periodic_statement_does_not_read_history(database: OpenDatabase) -> None:
    opened = await database("checkpoints")
    async with opened.connection() as connection:
        await connection.execute(HISTORY)
    costly = {}
    for name, statement in STATEMENTS.items():
        async with opened.transaction() as tx:
            explaining = Explaining(tx.connection)
            await statement(explaining)  # type: ignore[arg-type]
        assert explaining.plans, name
        for node in (node for plan in explaining.plans for node in nodes(plan)):
            if rows_read(node) > MAX_ROWS_READ:
                costly[name] = f"{node['Node Type']} reads {rows_read(node):.0f} rows"
    assert costly == {}
