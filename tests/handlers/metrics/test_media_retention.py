"""Media of jobs that ended long ago are deleted, rows and objects, whenever the process ends."""

# ruff: noqa: F811  (fixtures of another module)

import inspect
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSucceeded
from drivetrain_schemas.media import media_directory
from services.metrics import media_retention, retention
from services.metrics.handlers import HANDLERS
from services.metrics.media_retention import MediaDeleter
from tests.events import handle, make_event
from tests.handlers.metrics.builders import JOB
from tests.handlers.metrics.test_media import client, get, make_media, metrics, take  # noqa: F401
from tests.handlers.metrics.test_tiering import Dies, Steps, WatchedStore

RUNS = job_id_for("default", "it runs")
NOW = timedelta(0)


async def filled_store(steps: Steps | None = None) -> WatchedStore:
    """Objects of two jobs, one of which is a part of the name of another."""
    store = WatchedStore(steps)
    for key in keys():
        await store.put(key, b"bytes")
    return store


def keys(*jobs: str) -> set[str]:
    names = ("ab" * 32, "cd" * 32)
    return {
        f"{media_directory('default', job)}/{name}" for job in jobs or (JOB, RUNS) for name in names
    }


async def log_and_end(metrics) -> None:
    """Two attempts that logged the same bytes; the other job runs."""
    await take(
        metrics,
        make_media("a", 1),
        make_media("a", 2, number=2, sha256="cd" * 32),
        make_media("a", 1, attempt=2),
        *(make_media("a", 1, number=n, item=n, job_id=RUNS) for n in range(2)),
    )
    await end(metrics, JOB)


async def end(metrics, job_id: str) -> None:
    ended = JobSucceeded(job_id=job_id, finished_at=datetime.now(UTC), attempts=2)
    await handle(metrics, HANDLERS, make_event(ended))


async def rows(metrics) -> list[Any]:
    async with metrics.connection() as connection:
        return await connection.fetch("select distinct job_id from media")


async def test_an_ended_jobs_media_go_and_those_of_one_that_runs_stay(metrics, client) -> None:
    store = await filled_store()
    await log_and_end(metrics)
    for keep in (None, timedelta(days=1)):
        await MediaDeleter(metrics, store, keep).run_alone()
    assert set(store._objects) == keys()
    assert len((await get(client))["names"]) == 1
    deleter = MediaDeleter(metrics, store, NOW)
    await deleter.run_alone()
    assert (await get(client))["names"] == []
    assert set(store._objects) == keys()  # what is being read can be read to its end
    await deleter.run_alone()
    assert set(store._objects) == keys(RUNS)
    assert [row["job_id"] for row in await rows(metrics)] == [RUNS]


async def test_what_arrives_late_is_not_shown_without_its_bytes(metrics, client) -> None:
    await log_and_end(metrics)
    deleter = MediaDeleter(metrics, await filled_store(), NOW)
    for _ in range(2):
        await deleter.run_alone()
        await take(metrics, make_media("a", 1))
    assert (await get(client))["names"] == []


async def test_killed_before_or_after_every_step_all_is_deleted_in_the_end(
    metrics, client, monkeypatch
) -> None:
    """And no row is left whose bytes are gone."""
    steps = Steps()
    store = await filled_store(steps)
    for name in ("to_delete", "intend", "record"):
        of = getattr(media_retention, name)
        assert inspect.iscoroutinefunction(of)
        monkeypatch.setattr(
            media_retention, name, lambda *given, of=of: steps.take(lambda: of(*given))
        )
    await log_and_end(metrics)
    deleter, number = MediaDeleter(metrics, store, NOW), 0
    while True:
        for steps.dies_after in (False, True):
            steps.num_done, steps.dies_at = 0, number
            with suppress(Dies):
                await deleter.run()
            shown = {item["sha256"] for item in (await get(client, name="a"))["items"]}
            assert all(
                f"{media_directory('default', JOB)}/{sha}" in store._objects for sha in shown
            )
        if steps.num_done <= number:
            break
        number += 1
    assert number >= 2
    assert set(store._objects) == keys(RUNS)


async def test_while_the_store_is_away_the_intent_stays(metrics) -> None:
    store = await filled_store()
    await log_and_end(metrics)
    deleter = MediaDeleter(metrics, store, NOW)
    await deleter.run()
    store.is_away = True
    await deleter.run()
    assert set(store._objects) == keys()
    store.is_away = False
    await deleter.run()
    assert set(store._objects) == keys(RUNS)


async def test_an_object_that_cannot_be_deleted_holds_up_nothing(metrics, monkeypatch) -> None:
    """Its job is tried again, though there is room for one job in each pass."""
    monkeypatch.setattr(media_retention, "MAX_JOBS", 1)
    store = await filled_store()
    await log_and_end(metrics)
    await end(metrics, RUNS)
    deleter = MediaDeleter(metrics, store, NOW)
    held = min(keys(JOB))
    store.held = {held}
    for _ in range(200):
        await deleter.run()
        if set(store._objects) == {held}:
            break
    assert set(store._objects) == {held}
    store.held = set()
    await deleter.run()
    assert not store._objects


async def test_the_heads_of_deleted_jobs_go_in_the_end(metrics) -> None:
    await log_and_end(metrics)
    await end(metrics, job_id_for("default", "without media"))
    deleter = MediaDeleter(metrics, await filled_store(), NOW)
    (rule,) = (one for one in retention.RULES if one.table == "media_heads")
    for num_left in (2, 2, 1):
        async with metrics.transaction() as tx:
            await tx.connection.execute(rule.statement, NOW, 100)
            assert await tx.connection.fetchval("select count(*) from media_heads") == num_left
        await deleter.run()
