"""Lines of ended jobs move to the object store: still found, nothing lost or doubled."""

# ruff: noqa: F811  (fixtures of other modules)

import asyncio
import inspect
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from drivetrain_schemas.ids import allocation_id_for, run_id_for
from drivetrain_schemas.runs import RunStarting, RunSucceeded
from services.metrics import streams
from services.metrics.api import read_api
from services.metrics.handlers import HANDLERS
from services.metrics.logs import format as log_format
from services.metrics.logs import moving as log_moving
from services.metrics.logs import segment_store
from services.metrics.logs.moving import LogMover, LogPolicy
from services.runtime.directory_store import DirectoryStore
from services.runtime.errors import StoreError
from tests.events import handle, handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_logs
from tests.handlers.metrics.test_streams import take_logs
from tests.handlers.metrics.test_tiering import (  # noqa: F401
    OTHER_JOB,
    SETTINGS,
    Dies,
    Steps,
    WatchedStore,
    client,
    metrics,
    store,
)

NOW = LogPolicy(max_bytes=2**30, quiet=timedelta(0), late=timedelta(0))
AT = datetime(2026, 1, 1, tzinfo=UTC)
NUM_LINES = 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of about 20 lines, blocks of about 6."""
    monkeypatch.setattr(log_moving, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(log_format, "BLOCK_BYTES", 600)


def line(number: int) -> str:
    return f"{'ERROR' if number % 25 == 3 else 'INFO'}:root:step {number} ".ljust(100, ".")


async def write(metrics, first: int = 0, end: int = NUM_LINES, **fields: Any) -> None:
    """Chunks of two lines, of rank 0 and 1 in turn."""
    events = [
        make_event(
            make_logs([line(n), line(n + 1)], rank=n // 2 % 2, batch=n, first_line=n, **fields)
        )
        for n in range(first, end, 2)
    ]
    await handle_batch(metrics, take_logs, *events)


async def get(client, **query: Any) -> Any:
    answer = await client.get("/logs", params={"job_id": JOB, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def walk(client, step: int = 7, **query: Any) -> list[int]:
    """The positions of all lines, forwards by small pages; the same ones backwards."""
    forwards: list[int] = []
    page = await get(client, limit=step, **query)
    while True:
        forwards += [one["position"] for one in page["lines"]]
        if page["is_complete"]:
            break
        page = await get(client, limit=step, after=page["next"], **query)
    backwards: list[int] = []
    page = await get(client, tail=step, **query)
    while True:
        backwards = [one["position"] for one in page["lines"]] + backwards
        if page["is_complete"]:
            break
        page = await get(client, tail=step, before=page["searched_from"], **query)
    assert forwards == backwards
    return forwards


async def count(metrics, what: str) -> int:
    async with metrics.connection() as connection:
        return int(await connection.fetchval(f"select count(*) from {what}"))


async def test_lines_before_and_after_a_lost_segment_are_answered(metrics, client, store) -> None:
    await write(metrics)
    await LogMover(metrics, store, NOW).run()
    await write(metrics, NUM_LINES, NUM_LINES + 20)
    async with metrics.connection() as connection:
        lost = await connection.fetchrow("select * from log_segments order by id offset 1 limit 1")
    await store.delete(lost["key"])
    newest = await get(client, tail=5000)
    first, end = lost["first_position"], lost["end_position"]
    assert [one["position"] for one in newest["lines"]] == list(range(end, NUM_LINES + 20))
    assert not newest["is_complete"]
    oldest = await get(client, limit=5000)
    assert [one["position"] for one in oldest["lines"]] == list(range(first))
    assert not oldest["is_complete"]
    for query in ({"tail": 5, "before": newest["searched_from"]}, {"after": oldest["next"]}):
        answer = await client.get("/logs", params={"job_id": JOB, **query})
        assert (answer.status_code, "lost" in answer.text) == (503, True)


async def test_all_lines_are_paged_and_searched_as_before(metrics, client, store) -> None:
    await write(metrics)
    before = (await get(client, tail=5000))["lines"]
    await LogMover(metrics, store, NOW).run()
    assert await count(metrics, "log_chunks") == await count(metrics, "log_hot") == 0
    assert await count(metrics, "log_segments where state = 'stored'") >= 3
    assert (await get(client, tail=5000))["lines"] == before
    assert await walk(client) == list(range(NUM_LINES))
    assert await walk(client, rank=1) == [n for n in range(NUM_LINES) if n // 2 % 2 == 1]
    assert await walk(client, level="error") == [3, 28, 53]
    assert await walk(client, search="STEP 41 ") == [41]
    assert [one["line"] for one in (await get(client, tail=1, before=8))["lines"]] == [line(7)]
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert await walk(client, since=in_an_hour) == []
    assert await walk(client, until=in_an_hour) == list(range(NUM_LINES))


async def test_blocks_without_a_line_of_the_level_are_not_read(metrics, client, store) -> None:
    await write(metrics)
    await LogMover(metrics, store, NOW).run()
    stored = sum(len(content) for content in store._objects.values())
    await walk(client, level="error")
    assert 0 < store.num_bytes_read < stored


async def test_a_running_job_keeps_its_last_lines_here(metrics, client, store, monkeypatch) -> None:
    monkeypatch.setattr(log_moving, "HOT_BYTES", 4000)
    run = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}
    allocation = f"alloc_{JOB.removeprefix('job_')}_1"
    await handle(
        metrics, HANDLERS, make_event(RunStarting(**run, allocation_id=allocation, num_pods=1))
    )
    await write(metrics)
    mover = LogMover(metrics, store, NOW)
    await mover.run()
    assert 0 < await count(metrics, "log_chunks") < NUM_LINES / 2
    assert await walk(client) == list(range(NUM_LINES))
    await write(metrics, NUM_LINES, NUM_LINES + 2, session="s2")
    await handle(metrics, HANDLERS, make_event(RunSucceeded(**run, ended_at=AT)))
    await mover.run()
    assert await count(metrics, "log_chunks") == 0
    assert await walk(client) == list(range(NUM_LINES + 2))


async def test_a_pass_that_dies_anywhere_loses_and_doubles_nothing(
    metrics,
    monkeypatch,
) -> None:
    steps = Steps()
    watched = WatchedStore(steps)
    for name, function in inspect.getmembers(segment_store, inspect.iscoroutinefunction):
        if not name.startswith(("segment_", "_")):

            def as_step(of: Any) -> Any:
                return lambda *given: steps.take(lambda: of(*given))

            monkeypatch.setattr(segment_store, name, as_step(function))
    await write(metrics)
    mover, number = LogMover(metrics, watched, NOW), 0
    app = read_api(metrics, watched, SETTINGS)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://metrics")
    while await count(metrics, "log_hot"):
        for steps.dies_after in (False, True):
            steps.num_done, steps.dies_at = 0, number
            with suppress(Dies):
                await mover.run()
            steps.dies_at = None
            assert await walk(client) == list(range(NUM_LINES)), (number, steps.dies_after)
        number += 1
    assert number > 10
    await mover.run()
    await client.aclose()
    async with metrics.connection() as connection:
        rows = await connection.fetch("select key from log_segments where state = 'stored'")
    assert set(watched._objects) == {row["key"] for row in rows}


async def test_what_is_written_after_the_lock_was_lost_is_deleted_later(
    metrics, client, store
) -> None:
    """Another process goes on meanwhile; what comes late is no line, and is not left for ever."""
    slow, arrives = WatchedStore(Steps()), asyncio.Event()
    slow._objects = store._objects
    begun = asyncio.Event()
    put = store.put_if_absent

    async def late(key: str, content: bytes) -> bool:
        begun.set()
        await arrives.wait()
        return bool(await put(key, content))

    slow.put_if_absent = late
    await write(metrics)
    lost = asyncio.create_task(LogMover(metrics, slow, NOW).run())
    await begun.wait()
    await LogMover(metrics, store, replace(NOW, late=timedelta(hours=1))).run()
    arrives.set()
    with pytest.raises(StoreError, match="given up"):
        await lost
    assert await walk(client) == list(range(NUM_LINES))
    await LogMover(metrics, store, NOW).run()
    async with metrics.connection() as connection:
        rows = await connection.fetch("select key from log_segments")
    assert set(store._objects) == {row["key"] for row in rows}


async def test_two_passes_that_move_the_same_lines_store_them_once(metrics, client, store) -> None:
    """As where one has lost its lock and does not know it yet."""
    await write(metrics)
    other = LogMover(metrics, store, NOW)
    put = store.put_if_absent

    async def meanwhile(key: str, content: bytes) -> bool:
        store.put_if_absent = put
        await other._move(JOB)
        return await put(key, content)

    store.put_if_absent = meanwhile
    with suppress(StoreError):  # it ends, and the next one goes on
        await LogMover(metrics, store, NOW).run()
    await LogMover(metrics, store, NOW).run()
    await LogMover(metrics, store, NOW).run()
    assert await walk(client) == list(range(NUM_LINES))
    async with metrics.connection() as connection:
        rows = await connection.fetch("select key from log_segments where state = 'stored'")
        num_bytes = await connection.fetchval("select num_cold_bytes from log_heads")
    assert set(store._objects) == {row["key"] for row in rows}
    assert num_bytes == NUM_LINES / 2 * 201, "of each line once"


async def test_while_the_store_is_away_nothing_is_deleted(metrics, client, store) -> None:
    await write(metrics)
    store.is_away = True
    mover = LogMover(metrics, store, LogPolicy(2**30, timedelta(0), timedelta(0)))
    for _ in range(3):
        with pytest.raises(StoreError):
            await mover.run()
    assert await walk(client) == list(range(NUM_LINES))
    store.is_away = False
    await LogMover(metrics, store, NOW).run()
    store.is_away = True
    answer = await client.get("/logs", params={"job_id": JOB, "tail": 10})
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


async def test_a_segment_that_cannot_be_deleted_holds_up_nothing(
    metrics, client, store, monkeypatch
) -> None:
    """Though a pass deletes one at most."""
    monkeypatch.setattr(log_moving, "MAX_DELETES", 1)
    await write(metrics)
    await LogMover(metrics, store, NOW).run()
    async with metrics.connection() as connection:
        await connection.execute("update log_segments set state = 'deleting'")
        rows = await connection.fetch("select key from log_segments order by id")
    first, *others = [row["key"] for row in rows]
    assert others
    store.held = {first}
    await write(metrics, NUM_LINES, NUM_LINES + 20)
    await LogMover(metrics, store, NOW).run()
    assert await count(metrics, "log_chunks") == 0, "lines are moved"
    for _ in range(200):
        if not set(others) & set(store._objects):
            break
        await LogMover(metrics, store, NOW).run()
    assert first in store._objects
    assert not set(others) & set(store._objects)


async def test_what_reads_back_as_something_else_is_not_recorded(metrics, client, store) -> None:
    await write(metrics)

    async def other(key: str) -> bytes:
        return b"other"

    store.get = other
    with pytest.raises(StoreError, match="not what was written"):
        await LogMover(metrics, store, NOW).run()
    assert await count(metrics, "log_chunks") == NUM_LINES / 2


async def test_a_flood_pushes_out_its_own_first_lines_only(metrics, client, store) -> None:
    other = {"job_id": OTHER_JOB, "tenant_id": "other"}
    await write(metrics, 0, 20, **other)
    mover = LogMover(metrics, store, LogPolicy(4000, quiet=timedelta(0)))
    await write(metrics)
    await mover.run()
    page = await get(client, limit=5000)
    first = page["lines"][0]["position"]
    assert page["num_deleted_lines"] == first > 0
    assert await walk(client) == list(range(first, NUM_LINES))
    answer = await client.get("/logs", params={"job_id": OTHER_JOB})
    assert len(answer.json()["lines"]) == 20
    num_objects = len(store._objects)
    await mover.run()
    assert len(store._objects) < num_objects


async def test_old_lines_are_deleted_where_a_policy_says_so(metrics, client, store) -> None:
    await write(metrics)
    await LogMover(metrics, store, NOW).run()
    await LogMover(metrics, store, LogPolicy(2**30, timedelta(days=1))).run()
    assert await walk(client) == list(range(NUM_LINES))
    mover = LogMover(metrics, store, LogPolicy(2**30, timedelta(0)))
    await mover.run()
    await mover.run()
    page = await get(client)
    assert (page["lines"], page["num_deleted_lines"], store._objects) == ([], NUM_LINES, {})


async def test_old_lines_of_a_running_job_are_kept(metrics, client, store) -> None:
    run: Any = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}
    await write(metrics)
    await LogMover(metrics, store, NOW).run()
    starting = RunStarting(**run, allocation_id=allocation_id_for(JOB, 1), num_pods=1)
    await handle(metrics, HANDLERS, make_event(starting))
    mover = LogMover(metrics, store, LogPolicy(2**30, timedelta(0)))
    await mover.run()
    assert await walk(client) == list(range(NUM_LINES))
    await handle(metrics, HANDLERS, make_event(RunSucceeded(**run, ended_at=AT)))
    await mover.run()
    assert await walk(client) == []


async def test_old_lines_are_kept_between_two_attempts(metrics, client, store) -> None:
    """No run is live then; the job's last line tells that it goes on."""
    await write(metrics)
    mover = LogMover(metrics, store, replace(NOW, keep=timedelta(days=1)))
    await mover.run()
    await age_segments(metrics)
    await write(metrics, NUM_LINES, NUM_LINES + 2)
    await mover.run()  # the new lines are in no segment yet when it begins
    await mover.run()
    assert await walk(client) == list(range(NUM_LINES + 2))
    await age_segments(metrics)
    await mover.run()
    assert await walk(client) == []


async def age_segments(metrics) -> None:
    async with metrics.connection() as connection:
        await connection.execute("update log_segments set last_at = last_at - interval '2 days'")


async def test_lines_that_wait_for_the_store_are_bounded_and_counted(
    metrics,
    client,
    store,
    monkeypatch,
) -> None:
    monkeypatch.setattr(streams, "MAX_HOT_BYTES", 1000)
    await write(metrics)
    await write(metrics, NUM_LINES, NUM_LINES + 2)
    page = await get(client, tail=1)
    assert (page["num_lines"], page["num_dropped_bytes"]) == (NUM_LINES, 201)
    await LogMover(metrics, store, NOW).run()
    await write(metrics, NUM_LINES + 2, NUM_LINES + 4)
    assert await walk(client) == list(range(NUM_LINES + 2))


async def test_lines_written_while_others_are_moved_are_there(metrics, client, store) -> None:
    mover = LogMover(metrics, store, NOW)

    async def writing() -> None:
        for n in range(0, 200, 2):
            await write(metrics, n, n + 2)

    writer = asyncio.create_task(writing())
    while not writer.done():
        await mover.run()
    await writer
    await mover.run()
    assert await walk(client, 50) == list(range(200))
    assert await count(metrics, "log_hot") == 0


def test_a_damaged_block_is_an_error_and_no_lines() -> None:
    for content in (b"", b"other", b"\x28\xb5\x2f\xfd" + b"\0" * 50):
        with pytest.raises(StoreError, match="damaged"):
            log_format.decode(content, 10)


# Moves the lines of a directory store, and is killed in its n-th write or reading back.
MOVER = """
import asyncio, os, signal, sys
from datetime import timedelta
from pathlib import Path
from services.metrics.logs import format as log_format, moving as log_moving
from services.metrics.logs.moving import LogMover, LogPolicy
from services.runtime.database import Database
from services.runtime.directory_store import DirectoryStore
from services.runtime.transaction import Origin

dsn, schema, root, call, left = sys.argv[1:]
log_moving.SEGMENT_BYTES, log_format.BLOCK_BYTES, left = 2000, 600, int(left)


class Killed(DirectoryStore):
    async def put_if_absent(self, key, content):
        self.count("before")
        done = await super().put_if_absent(key, content)
        self.count("after")
        return done

    def count(self, moment):
        global left
        left -= moment == call
        if left == 0 and moment == call:
            os.kill(os.getpid(), signal.SIGKILL)


async def main():
    database = Database(dsn, schema, Origin("/drivetrain/metrics", "drivetrain."))
    await database.open([])
    await LogMover(database, Killed(Path(root)), LogPolicy(2**30, quiet=timedelta(0))).run_alone()

asyncio.run(main())
"""


async def test_kill_9_while_lines_are_moved(metrics, postgres_dsn, tmp_path) -> None:
    root = tmp_path / "objects"
    store = DirectoryStore(root)
    await store.create_root()
    await write(metrics)
    app = read_api(metrics, store, SETTINGS)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://metrics"
    ) as client:
        for call, number in (("before", 2), ("after", 1), ("after", 2)):
            given = (postgres_dsn, metrics.schema, str(root), call, str(number))
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", MOVER, *given)
            assert await process.wait() == -signal.SIGKILL
            assert await walk(client) == list(range(NUM_LINES))
        await LogMover(metrics, store, NOW).run_alone()
        assert await count(metrics, "log_chunks") == 0
        assert await walk(client) == list(range(NUM_LINES))
    stored = {str(path.relative_to(root)) for path in root.rglob("*.zst")}
    async with metrics.connection() as connection:
        rows = await connection.fetch("select key from log_segments")
    assert stored == {row["key"] for row in rows}
