"""What the service deletes of its own tables: rows that go are counted, rows that stay are not."""

from datetime import timedelta

import pytest

from services.metrics.media_retention import MediaDeleter
from services.metrics.retention import RULES
from services.runtime import retention
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.retention import Retention, Rule
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.metrics.history import add_other_jobs
from tests.fakes import InMemoryObjectStore

# Of each table, rows as many and as old as they are asked for. Those of `media_heads` have media,
# and these were deleted: without media a row is `add_other_jobs`'s.
FILL = {
    "batches": """(run_id, rank, session, batch, stream, received_at)
        select 'run', 0, 's', n, 'logs', {at}""",
    "runs": """(run_id, job_id, tenant_id, attempt, state, created_at)
        select 'run_' || n, 'job', 'default', 1, 'failed', {at}""",
    "trials": """(job_id, tenant_id, study_id, number, metric, rungs, finished_at)
        select 'job_' || n, 'default', 's', n, 'loss', '{{1}}', {at}""",
    "media_heads": """(job_id, ended_at, deleting_at, deleted_at)
        select 'job_' || n, {at}, {at}, {at}""",
    "windows": """(run_id, source_id, starts_at, job_id, attempt, version, series, received_at)
        select 'run', 'run/0', n, 'job', 1, 1, '{{}}', {at}""",
    "run_health": """(run_id, next_window, health, created_at)
        select 'ended_' || n, 0, '{{}}', {at}""",
    "deliveries": """(webhook, event_id, body, created_at)
        select 'pager', 'event_' || n, '', {at}""",
    "silences": """(silence_id, tenant_id, ends_at, reason, created_at)
        select 'silence_' || n, 'default', {at}, '', {at}""",
    "watched_jobs": "(job_id, losses, finished_at) select 'job_' || n, '{{loss}}', {at}",
    "held_deliveries": """(webhook, event_id, body, tenant_id, job_id, run_id, alert, held_until)
        select 'pager', 'event_' || n, '', 'default', 'job', 'run', 'stalled', {at}""",
    "lineage_jobs": "(job_id, facts, finished_at) select 'job_' || n, '', {at}",
    "lineage_runs": "(run_id, began_at, ended_at) select 'run_' || n, {at}, {at}",
    "lineage_checkpoints": """(run_id, checkpoint_id, is_input, step, created_at)
        select 'ended_' || n, 'ckpt', false, 1, {at}""",
    "alerts": "(run_id, alert, series, raised_at) select 'ended_' || n, 'stalled', '', {at}",
    "warnings": "(run_id, number, detail, created_at) select 'ended_' || n, 1, '', {at}",
    "descriptions": "(run_id, number, created_at) select 'ended_' || n, 1, {at}",
}


every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.table)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "STEP_ROWS", 50)
    monkeypatch.setattr(retention, "STEP_SECONDS", 0.0)


async def add_rows(metrics: Database, table: str, first: int, number: int, at: str) -> None:
    rows = f"from generate_series({first}, {first + number - 1}) as n"
    async with metrics.connection() as connection:
        await connection.execute(f"insert into {table} {FILL[table].format(at=at)} {rows}")
        await connection.execute(f"analyze {table}")


def pruning(metrics: Database, *rules: Rule) -> Retention:
    return Retention(metrics, "", SystemClock(), rules)


def test_every_table_has_rows() -> None:
    assert FILL.keys() == {rule.table for rule in RULES}


@every_rule
async def test_rows_that_stay_are_not_read(rule: Rule, database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_rows(metrics, rule.table, 0, size, "now()")
        while True:
            yield pruning(metrics, rule).prune

    (await measure(scenario, 1000)).assert_flat()


@every_rule
async def test_rows_go_in_steps_at_the_cost_of_their_number(
    rule: Rule, database: OpenDatabase
) -> None:
    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_rows(metrics, rule.table, 0, 5000, "now()")
        first = 5000
        while True:
            await add_rows(metrics, rule.table, first, size, "now() - interval '1 year'")
            first += size
            yield pruning(metrics, rule).prune

    (await measure(scenario, 200)).assert_linear()


async def test_media_that_stay_are_not_read(database: OpenDatabase) -> None:
    """Those of jobs that ended long ago, where all media are kept."""
    [heads] = [rule for rule in RULES if rule.table == "media_heads"]

    async def scenario(size: int) -> Runs:
        metrics = await database("metrics")
        await add_other_jobs(metrics, size)
        deleter = MediaDeleter(metrics, InMemoryObjectStore(), timedelta(days=1000))

        async def passes() -> None:
            await deleter.run()
            await pruning(metrics, heads).prune()

        while True:
            yield passes

    (await measure(scenario, 1000)).assert_flat()
