"""What a page costs follows what it shows, not what ever happened (docs/architecture.md, rule 19).

Every statement that a page or an answer runs is explained on 200,000 jobs and a million events: it
may visit a bounded number of rows.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from asyncpg.pool import PoolConnectionProxy

from services.gateway.queries import timeline
from services.gateway.queries.job_list import WINDOW
from services.gateway.rest.positions import position_text
from services.runtime.database import Database
from services.runtime.transaction import Origin
from tests.handlers.gateway.model import Model, Server, serving

NUM_JOBS = 200_000
# A page of 50 jobs reads a row of each in five tables; a job shows 1,000 checkpoints at most.
MAX_ROWS_VISITED = 5_000

# A number as the 26 base32 characters of an id.
ID = "translate(lpad({}::text, 26, '0'), '0189', 'abcd')"
JOB, STUDY = f"'job_' || {ID.format('n')}", f"'study_' || {ID.format('n')}"
DAY = "timestamptz '2026-01-01' + n * interval '1 minute'"

LONG_STUDY = "study_" + "q" * 26

HISTORY = f"""
create temp table numbers as select n from generate_series(1, {NUM_JOBS}) as n;
insert into jobs (job_id, tenant_id, state, state_seq, queued_at, attempt, run_id,
    cancel_requested, finished_at, refused_seq)
select {JOB}, 'default', case when n % 10 = 0 then 'failed' else 'succeeded' end, 9, {DAY}, 1, n,
    false, {DAY}, -1 from numbers;
update jobs set state = 'running', finished_at = null where job_id > 'job_' || {ID.format(199_900)};
insert into requests (subject_id, request_id, name, spec, is_accepted, asked_at, event_id, pool,
    devices, priority, metric, goal)
select {JOB}, n, 'job', '{{}}', true, {DAY}, n, 'default', 1, 0, 'accuracy', 'maximize'
from numbers;
insert into requests (subject_id, request_id, name, spec, is_accepted, asked_at, event_id, sampler)
select {STUDY}, 's' || n, 'search', '{{}}', true, {DAY}, 's' || n, 'grid'
from numbers where n <= 20000;
update jobs set group_id = 'study_' || substr(job_id, 5)
    where job_id <= 'job_' || {ID.format(20_000)};
update jobs set result = jsonb_build_object('best',
    jsonb_build_object('name', 'accuracy', 'goal', 'maximize', 'value', 0.5, 'step', 1));
insert into job_progress
select {JOB}, n, 1, 1, 'training', 5, 10, null, 0, 0, 1, {DAY}, {DAY}, {DAY}
from numbers;
insert into job_spend select {JOB}, 'default', 5, {DAY} from numbers;
insert into runs (run_id, job_id, attempt, fence, state, state_seq)
select n, {JOB}, 1, 1, 'succeeded', 5 from numbers;
insert into allocations
select n, {JOB}, n, 1,
    jsonb_build_array(jsonb_build_object('node_id', 'node-' || n % 100, 'slot', 1)), {DAY},
    case when n < 199900 then {DAY} end from numbers;
insert into checkpoints (checkpoint_id, tenant_id, job_id, run_id, attempt, fence, step,
    committed_seq, metrics, best_seq, rejected_seq, deleted_seq, is_pinned)
select n, 'default', case when n < 20000 then 'job_' || {ID.format(NUM_JOBS)} else {JOB} end,
    n, 1, 1, n, n, '{{"accuracy": 1}}', n, -1, case when n < 19000 then n else -1 end, false
from numbers;
insert into alerts (run_id, alert, job_id, attempt, raised_seq, cleared_seq, raised_at, tenant_id,
    detail)
select n, 'stalled', {JOB}, 1, 1, n % 20 / 10 * 2, {DAY}, 'default', 'slow'
from numbers where n % 10 = 0;
insert into silences
select n, 'default', 1, null, null, 'p', {DAY}, '', {DAY}, '', case when n < 100 then 0 else 2 end
from numbers where n < 10000;
insert into nodes select 'node-' || n, 'default', 'cpu', 8, 1, case when n < 100 then -1 else 2 end
from numbers where n <= 20000;
insert into studies (study_id, tenant_id, state, started_at, refused_seq)
select {STUDY}, 'default', 'completed', {DAY}, -1 from numbers where n <= 20000;
insert into trial_counts select {STUDY}, 5, 5, 0, 0.1, 1, 0.9, 2 from numbers where n <= 20000;
insert into trials (study_id, number, job_id, hyperparameters, state, state_seq, value)
select {STUDY}, number, {JOB}, '{{}}', 'completed', 1, 0.5
from numbers, generate_series(0, 4) as number where n <= 20000;
insert into studies (study_id, tenant_id, state, started_at, refused_seq)
values ('{LONG_STUDY}', 'default', 'running', now(), -1);
insert into trial_counts values ('{LONG_STUDY}', 20000, 5000, 0, 0.1, 1, 0.9, 2);
insert into trials (study_id, number, job_id, hyperparameters, state, state_seq, value, rung,
    measured, was_best, parent)
select '{LONG_STUDY}', n, {JOB}, '{{"rate": 0.5}}',
    case when n % 4 = 0 then 'completed' when n > 19900 then 'proposed' else 'stopped' end, 1,
    case when n % 4 = 0 then 1.0 / n end, 10, 0.5, n % 4 = 0, n / 2
from numbers where n <= 20000;
insert into trial_rungs
select '{LONG_STUDY}', n, step, 1, 0.5, 'continue', null, null, null, ''
from numbers, unnest(array[10, 30]) as step where n <= 20000;
insert into rung_counts select '{LONG_STUDY}', n, 20000, 1, 2, 3, 0.5, 1
from generate_series(1, 64) as n;
insert into rejections select n, {JOB}, 1, 'no_such_pool', '', '[]' from numbers;
insert into tenant_counts values ('default', '{{"succeeded": 180000}}', 200000, 1000000);
insert into timeline (cursor, source, event_id, type, tenant_id, job_id, study_id, occurred_at, seq,
    payload)
select n * 5 + event, '/s', n || '-' || event, 'run.heard', 'default', {JOB},
    case when n <= 20000 then {STUDY} end, {DAY}, event, '{{"attempt": 1}}'
from numbers, generate_series(0, 4) as event;
update stream set last_cursor = {NUM_JOBS * 5 + 4};
"""
JOB_ID = "job_" + str(NUM_JOBS).zfill(26).translate(str.maketrans("0189", "abcd"))
STUDY_ID = "study_" + "20000".zfill(26).translate(str.maketrans("0189", "abcd"))
PATHS = (
    "/",
    "/?state=failed",
    "/?group=no",
    "/?metric=accuracy&sort=highest",
    f"/?study_id={STUDY_ID}",
    f"/jobs/{JOB_ID}",
    "/studies",
    f"/studies/{STUDY_ID}",
    f"/studies/{LONG_STUDY}",
    f"/studies/{LONG_STUDY}?after=200:0.00125:800",
    f"/v1/studies/{LONG_STUDY}?max_trials=300",
    f"/v1/studies/{LONG_STUDY}/insight",
    f"/v1/studies/{LONG_STUDY}/trials?after=9000&limit=100",
    f"/v1/studies/{LONG_STUDY}/trials/700/should-stop",
    "/nodes",
    "/v1/jobs",
    "/v1/jobs?state=running&limit=100",
    f"/v1/jobs/{JOB_ID}/timeline",
    f"/v1/jobs/{JOB_ID}/explain",
    "/v1/cost",
    "/v1/budgets",
    "/alerts",
    "/v1/alerts",
    "/v1/alerts?state=open",
    "/v1/alerts?state=ended&alert=diverging",
    f"/v1/alerts?job_id={JOB_ID}",
    "/v1/silences",
    "/v1/ids?kind=job&text=job",
    f"/v1/ids?kind=job&text={JOB_ID[:20]}",
    f"/v1/ids?kind=study&text={STUDY_ID[:-1]}",
    "/v1/ids?kind=checkpoint&text=ckpt_b",
    "/v1/studies?state=running",
    "/v1/studies?name=search",
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(postgres_dsn: str) -> AsyncIterator[Server]:
    database = Database(postgres_dsn, "gateway_large", Origin("/drivetrain/gateway", "drivetrain."))
    await database.open(["services.gateway"])
    async with database.pool.acquire() as connection:
        tables = await connection.fetch(
            "select table_name as name from information_schema.tables "
            "where table_schema = 'gateway_large' and table_type = 'BASE TABLE'"
        )
        for table in tables:
            await connection.execute(f'alter table "{table["name"]}" set unlogged')
        await connection.execute(HISTORY, timeout=240)
        await connection.execute("analyze", timeout=240)
    async with serving(Model(database)) as standing:
        yield standing
    async with database.pool.acquire() as connection:
        await connection.execute("drop schema gateway_large cascade")
    await database.close()


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[Any, ...]]]:
    """The statements that are run meanwhile, with their arguments."""
    statements: dict[str, tuple[Any, ...]] = {}

    def recording(name: str) -> Any:
        run = getattr(PoolConnectionProxy, name)

        async def record(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
            statements[query] = arguments
            return await run(self, query, *arguments, **options)

        return record

    with monkeypatch.context() as patch:
        for name in ("fetch", "fetchrow", "fetchval"):
            patch.setattr(PoolConnectionProxy, name, recording(name))
        yield statements


def scans(plan: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """The scans of a plan, each with the rows that it visits."""
    if "Scan" in plan["Node Type"]:
        rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        what = f"{plan['Node Type']} of {plan.get('Relation Name') or plan.get('Alias')}"
        yield int(rows * plan["Actual Loops"]), what
    for inner in plan.get("Plans", ()):
        yield from scans(inner)


async def visits(server: Server, statements: dict[str, tuple[Any, ...]]) -> dict[str, int]:
    """The rows visited by each of these statements; the text names the scans as well."""
    found = {}
    async with server.platform.database.connection() as connection:
        for statement, arguments in statements.items():
            explain = f"explain (analyze, format json) {statement}"
            (answer,) = json.loads(await connection.fetchval(explain, *arguments))
            of_plan = sorted(scans(answer["Plan"]), reverse=True)
            found[f"{statement}\n{of_plan}"] = sum(rows for rows, _ in of_plan)
    return found


@pytest.mark.parametrize("path", PATHS)
async def test_no_statement_reads_the_history(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with recorded(monkeypatch) as statements:
        answer = await server.client.get(path)
    assert answer.status_code == 200, answer.text
    assert len(statements) >= 1
    for statement, rows in (await visits(server, statements)).items():
        assert rows <= MAX_ROWS_VISITED, statement


async def test_a_job_is_followed_from_long_ago_by_its_own_events(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(monkeypatch) as statements:
        async with server.platform.database.connection() as connection:
            rows = await timeline.of_job(connection, "default", JOB_ID, 0, NUM_JOBS * 5 + 4, 500)
    assert [row["cursor"] for row in rows] == list(range(NUM_JOBS * 5, NUM_JOBS * 5 + 5))
    (visited,) = (await visits(server, statements)).values()
    assert visited <= 2 * len(rows)


@pytest.mark.parametrize("query", ["search=nowhere", "tag=nowhere", "metric=nowhere"])
async def test_a_search_without_a_match_reads_its_window_and_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    with recorded(monkeypatch) as statements:
        answer = await server.client.get(f"/v1/jobs?{query}")
    assert answer.json()["num_searched"] == WINDOW
    for statement, rows in (await visits(server, statements)).items():
        assert rows <= 5 * WINDOW, statement


@pytest.mark.parametrize("at", ["2026-05-19T21:00:00+00:00", "2026-01-02T02:00:00+00:00"])
async def test_a_page_far_down_the_list_costs_what_the_first_one_does(
    server: Server, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with recorded(monkeypatch) as statements:
        after = position_text(datetime.fromisoformat(at), JOB_ID)
        answer = await server.client.get("/v1/jobs", params={"after": after, "limit": 100})
    assert len(answer.json()["jobs"]) == 100
    for statement, rows in (await visits(server, statements)).items():
        assert rows <= MAX_ROWS_VISITED, statement


async def test_jobs_are_counted_without_reading_them(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(monkeypatch) as statements:
        page = (await server.client.get("/")).text
    assert "<dd>180000</dd>" in page
    assert not any("count(" in statement and "jobs" in statement for statement in statements)


async def test_the_list_of_jobs_shows_how_many_slots_are_in_use(server: Server) -> None:
    """101 allocations of a slot each are held, on 99 nodes of 8 slots that were not removed."""
    page = (await server.client.get("/")).text
    assert '<dd>101<span class="of"> of 792</span></dd>' in page
