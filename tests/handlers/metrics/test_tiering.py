"""Old samples move to the object store: nothing is lost or doubled, wherever it is interrupted."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio

from drivetrain_schemas.object_store import StoreFailure
from services.metrics import streams
from services.metrics.api import read_api
from services.metrics.cold import store as cold_store
from services.metrics.cold import tiering
from services.metrics.cold.tiering import Policy, Tierer
from services.metrics.core import levels
from services.metrics.retention import chart_rules
from services.metrics.series.rolling import Roller
from services.metrics.settings import MetricsSettings
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.errors import StoreError
from services.runtime.retention import Retention
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle_batch, make_event
from tests.fakes import InMemoryObjectStore, ManualClock
from tests.handlers.metrics.builders import JOB, make_samples

SETTINGS = MetricsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")
TAKE = partial(streams.take_samples, RunTokens(None))
NOW = Policy(after=timedelta(0), max_wait=timedelta(0), late=timedelta(0))
OTHER_JOB = "job_" + "o" * 26


class Dies(Exception):
    """The process ends here."""


class Steps:
    """Counts what a pass does outside of the process, and dies before or after the n-th."""

    def __init__(self) -> None:
        self.num_done = 0
        self.dies_at: int | None = None
        self.dies_after = False

    async def take(self, act: Callable[[], Awaitable[Any]]) -> Any:
        is_last = self.num_done == self.dies_at
        self.num_done += 1
        if is_last and not self.dies_after:
            raise Dies
        result = await act()
        if is_last:
            raise Dies
        return result


class WatchedStore(InMemoryObjectStore):
    def __init__(self, steps: Steps | None = None) -> None:
        super().__init__()
        self._steps = steps or Steps()
        self.is_away = False
        self.held: set[str] = set()  # keys that must not be deleted
        self.num_bytes_read = 0

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        self._check()
        put = super().put_if_absent
        return bool(await self._steps.take(lambda: put(key, content)))

    async def get(self, key: str) -> bytes:
        self._check()
        get = super().get
        return bytes(await self._steps.take(lambda: get(key)))

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        self._check()
        found = await super().get_range(key, start, end)
        self.num_bytes_read += len(found)
        return found

    async def delete(self, key: str) -> None:
        self._check()
        if key in self.held:
            raise StoreError(f"{key} is under a legal hold", StoreFailure.READ_ONLY)
        delete = super().delete
        await self._steps.take(lambda: delete(key))

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("the object store is away", StoreFailure.UNAVAILABLE)


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest_asyncio.fixture(loop_scope="session")
async def client(metrics: Database, store: WatchedStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=read_api(metrics, store, SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        yield client


class Platform:
    """Takes in samples, and adds them to levels."""

    def __init__(self, metrics: Database) -> None:
        self.metrics = metrics
        self._batch = 0

    async def log(self, columns: dict[str, dict[int, Any]], **fields: Any) -> None:
        self._batch += 1
        batch = make_samples(columns, batch=self._batch, **fields)
        await handle_batch(self.metrics, TAKE, make_event(batch))
        await Roller(self.metrics, SystemClock(), max_age=timedelta(0)).roll_all()

    async def count(self, table: str, where: str = "true") -> int:
        async with self.metrics.connection() as connection:
            return int(await connection.fetchval(f"select count(*) from {table} where {where}"))


@pytest.fixture
def platform(metrics: Database) -> Platform:
    return Platform(metrics)


async def samples(client: httpx.AsyncClient, name: str, job_id: str = JOB) -> dict[int, Any]:
    answer = await client.get(
        "/samples", params={"job_id": job_id, "names": name, "max_points": 100_000}
    )
    assert answer.status_code == 200, answer.text
    one = answer.json()["series"][name]
    return dict(zip(one["steps"], one["values"], strict=True))


def watch(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> None:
    """Every statement of the pass is a step."""
    for name, function in inspect.getmembers(cold_store, inspect.iscoroutinefunction):

        def watched(of: Any) -> Any:
            return lambda *given: steps.take(lambda: of(*given))

        if name != "overdue_seconds":
            monkeypatch.setattr(cold_store, name, watched(function))


@pytest.mark.parametrize("dies_after", [False, True], ids=["before", "after"])
async def test_a_process_that_dies_at_any_step_loses_and_doubles_nothing(
    metrics: Database,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    dies_after: bool,
) -> None:
    steps = Steps()
    store = WatchedStore(steps)
    watch(monkeypatch, steps)
    transport = httpx.ASGITransport(app=read_api(metrics, store, SETTINGS))
    expected: dict[int, float] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        num_deaths = 0
        while True:
            first = num_deaths * 10
            expected |= {step: step / 7 for step in range(first, first + 10)}
            await platform.log({"loss": {step: step / 7 for step in range(first, first + 10)}})
            steps.num_done, steps.dies_at, steps.dies_after = 0, num_deaths, dies_after
            try:
                await Tierer(metrics, store, NOW).run()
                break
            except Dies:
                num_deaths += 1
            steps.dies_at = None
            assert await samples(client, "loss") == expected
            await Tierer(metrics, store, NOW).run()
            assert await samples(client, "loss") == expected
        assert num_deaths > 10, "it died at every step"
    steps.dies_at = None
    await Tierer(metrics, store, NOW).run()
    async with metrics.connection() as connection:
        moved = await connection.fetchval("select sum(num_samples) from cold_chunks")
        kept = await connection.fetchval("select coalesce(sum(num_samples), 0) from chunks")
        files = await connection.fetch("select key from cold_files where state = 'stored'")
    assert (moved, kept) == (len(expected), 0)
    assert [info.key for info in await store.list("")] == sorted(row["key"] for row in files)


async def test_what_is_written_after_the_lock_was_lost_is_deleted_later(
    platform: Platform, store: WatchedStore, client: httpx.AsyncClient, metrics: Database
) -> None:
    """Another process goes on meanwhile; what comes late counts nothing, and goes in the end."""
    slow, begun, arrives = WatchedStore(Steps()), asyncio.Event(), asyncio.Event()
    slow._objects = store._objects

    async def late(key: str, content: bytes) -> bool:
        begun.set()
        await arrives.wait()
        return await store.put_if_absent(key, content)

    slow.put_if_absent = late  # type: ignore[method-assign]
    await platform.log({"loss": {1: 0.5, 2: 0.25}})
    lost = asyncio.create_task(Tierer(metrics, slow, NOW).run())
    await begun.wait()
    await Tierer(metrics, store, replace(NOW, late=timedelta(hours=1))).run()
    arrives.set()
    await lost
    assert await samples(client, "loss") == {1: 0.5, 2: 0.25}
    await Tierer(metrics, store, NOW).run()
    async with metrics.connection() as connection:
        files = await connection.fetch("select key from cold_files")
    assert sorted(store._objects) == sorted(row["key"] for row in files)


async def test_while_the_object_store_is_away_nothing_is_deleted(
    platform: Platform, store: WatchedStore, client: httpx.AsyncClient, metrics: Database
) -> None:
    await platform.log({"loss": {1: 0.5, 2: 0.25}})
    store.is_away = True
    with pytest.raises(StoreError):
        await Tierer(metrics, store, NOW).run()
    assert await samples(client, "loss") == {1: 0.5, 2: 0.25}
    store.is_away = False
    await Tierer(metrics, store, NOW).run()
    assert await platform.count("chunks") == 0
    assert await samples(client, "loss") == {1: 0.5, 2: 0.25}


async def test_an_object_that_cannot_be_deleted_holds_up_nothing(
    platform: Platform,
    store: WatchedStore,
    client: httpx.AsyncClient,
    metrics: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though a pass deletes one at most."""
    monkeypatch.setattr(tiering, "MAX_DELETES", 1)
    for number in (1, 2):
        await platform.log({"loss": {number: 0.5}})
        await Tierer(metrics, store, NOW).run()
    async with metrics.connection() as connection:
        rows = await connection.fetch("select key from cold_files order by id")
        await connection.execute("delete from cold_chunks")
        await connection.execute("update cold_files set state = 'deleting'")
    first, second = (row["key"] for row in rows)
    store.held = {first}
    await platform.log({"loss": {3: 0.25}})
    await Tierer(metrics, store, NOW).run()
    assert await platform.count("chunks") == 0, "samples are moved"
    assert await samples(client, "loss") == {3: 0.25}
    for _ in range(200):
        if second not in store._objects:
            break
        await Tierer(metrics, store, NOW).run()
    assert first in store._objects
    assert second not in store._objects
    store.held = set()
    await Tierer(metrics, store, NOW).run()
    assert first not in {info.key for info in await store.list("")}
    assert await platform.count("cold_files", "state = 'deleting'") == 0


async def test_what_is_read_back_otherwise_is_not_recorded(
    platform: Platform, store: WatchedStore, client: httpx.AsyncClient, metrics: Database
) -> None:
    class Damaging(WatchedStore):
        async def put_if_absent(self, key: str, content: bytes) -> bool:
            return await super().put_if_absent(key, content[:-100] + bytes(100))

    await platform.log({"loss": {1: 0.5}})
    with pytest.raises(StoreError, match="not what was written"):
        await Tierer(metrics, Damaging(), NOW).run()
    assert await samples(client, "loss") == {1: 0.5}


async def test_charts_of_long_series_do_not_need_the_object_store(
    platform: Platform,
    store: WatchedStore,
    client: httpx.AsyncClient,
    metrics: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "MIN_SAMPLES", 150)
    await platform.log({"loss": dict.fromkeys(range(3000), 0.5) | {1234: 9.0}})
    await Tierer(metrics, store, NOW).run()
    store.is_away = True
    query: dict[str, Any] = {"job_id": JOB, "name": "loss", "max_points": 100}
    chart = (await client.get("/chart", params=query)).json()
    assert max(chart["series"]["loss"]["highs"]) == 9.0
    exact = await client.get("/chart", params=query | {"from_step": 1230, "to_step": 1240})
    assert (exact.status_code, exact.json()["code"]) == (503, "store_unavailable")
    assert (await client.get("/samples", params={"job_id": JOB})).status_code == 503


@pytest.mark.parametrize("problem", ["lost", "short", "other bytes"])
async def test_a_file_that_is_lost_or_damaged_is_named(
    platform: Platform,
    store: WatchedStore,
    client: httpx.AsyncClient,
    metrics: Database,
    problem: str,
) -> None:
    await platform.log({"loss": {1: 0.5}})
    await Tierer(metrics, store, NOW).run()
    [file] = await store.list("cold/")
    content = await store.get(file.key)
    if problem == "lost":
        await store.delete(file.key)
    elif problem == "short":
        await store.put(file.key, content[:100])
    else:
        await store.put(file.key, bytes(len(content)))
    answer = await client.get("/samples", params={"job_id": JOB})
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert file.key in answer.json()["detail"]


async def test_late_doubled_and_repeated_steps_are_read_as_before(
    platform: Platform, store: WatchedStore, client: httpx.AsyncClient, metrics: Database
) -> None:
    tierer = Tierer(metrics, store, NOW)
    await platform.log({"loss": {5: 0.5, 3: 0.3, 4: 0.4}})
    await tierer.run()
    await platform.log({"loss": {2: 0.2, 4: "nan", 6: "inf"}})
    assert await samples(client, "loss") == {2: 0.2, 3: 0.3, 4: "nan", 5: 0.5, 6: "inf"}
    await tierer.run()
    assert await samples(client, "loss") == {2: 0.2, 3: 0.3, 4: "nan", 5: 0.5, 6: "inf"}
    await platform.log({"loss": {4: 40.0, 5: 50.0}}, attempt=2)
    await tierer.run()
    await platform.log({"loss": {5: 0.55, 1: 0.1}}, attempt=1)
    expected = {1: 0.1, 2: 0.2, 3: 0.3, 4: 40.0, 5: 50.0, 6: "inf"}
    assert await samples(client, "loss") == expected, "the highest attempt's step counts"
    await tierer.run()
    assert await samples(client, "loss") == expected
    assert await platform.count("chunks") == 0


async def test_a_short_series_whose_start_was_moved_stays_whole(
    platform: Platform,
    store: WatchedStore,
    client: httpx.AsyncClient,
    metrics: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "MIN_SAMPLES", 150)
    await platform.log({"loss": dict.fromkeys(range(100), 1.0)})
    await Tierer(metrics, store, NOW).run()
    await platform.log({"loss": dict.fromkeys(range(100, 400), 2.0)})
    query: dict[str, Any] = {"job_id": JOB, "name": "loss", "max_points": 20}
    chart = (await client.get("/chart", params=query)).json()
    steps = chart["steps"][chart["series"]["loss"]["steps"]]
    assert (steps[0], steps[-1]) == (0, 384)
    assert chart["series"]["loss"]["values"][0] == 1.0


async def test_what_is_still_needed_is_not_moved(
    platform: Platform, store: WatchedStore, metrics: Database
) -> None:
    await platform.log({"loss": {1: 0.5}})
    await platform.log({"loss": {1: 0.5}}, job_id=OTHER_JOB, run_id="run_" + "o" * 26 + "_1")
    async with metrics.connection() as connection:
        await connection.execute(
            """insert into runs (run_id, job_id, tenant_id, attempt, state)
            select run_id, job_id, 'default', 1, 'running' from series where job_id = $1""",
            JOB,
        )
        await connection.execute(
            """insert into trials (job_id, tenant_id, study_id, number, metric, rungs)
            values ($1, 'default', 'study', 1, 'loss', '{10}')""",
            OTHER_JOB,
        )
    tierer = Tierer(metrics, store, NOW)
    await tierer.run()
    assert await platform.count("chunks") == 2, "of a live run's short series, and of a trial"
    async with metrics.connection() as connection:
        await connection.execute("update runs set state = 'succeeded'")
        await connection.execute("update trials set finished_at = clock_timestamp()")
    await tierer.run()
    assert await platform.count("chunks") == 0


async def test_samples_that_are_not_old_enough_or_too_few_stay(
    platform: Platform, store: WatchedStore, metrics: Database
) -> None:
    await platform.log({"loss": {1: 0.5}})
    await Tierer(metrics, store, Policy(after=timedelta(hours=1))).run()
    await Tierer(metrics, store, Policy(after=timedelta(0))).run()
    assert await platform.count("chunks") == 1
    assert await store.list("") == []


async def test_a_part_of_a_long_series_is_read_without_the_rest_of_its_file(
    platform: Platform,
    store: WatchedStore,
    client: httpx.AsyncClient,
    metrics: Database,
) -> None:
    for first in range(0, 60_000, 4000):
        values = {step: 1 / (step + 1) for step in range(first, first + 4000)}
        await platform.log({"loss": values, "rate": values})
    await Tierer(metrics, store, NOW).run()
    [file] = await store.list("cold/series/")
    query = {"job_id": JOB, "names": "loss", "from_step": 20_000, "to_step": 20_100}
    answer = (await client.get("/samples", params=query)).json()
    assert answer["series"]["loss"]["values"] == [1 / (step + 1) for step in range(20_000, 20_101)]
    assert store.num_bytes_read < file.size_bytes / 5


async def test_old_files_are_deleted_by_age_only_and_charts_after_them(
    platform: Platform, store: WatchedStore, client: httpx.AsyncClient, metrics: Database
) -> None:
    tierer = Tierer(metrics, store, Policy(timedelta(0), timedelta(days=30), timedelta(0)))
    await platform.log({"loss": {1: 0.5}})
    await tierer.run()
    async with metrics.connection() as connection:
        old = timedelta(days=31)
        await connection.execute("update cold_files set newest_at = newest_at - $1::interval", old)
        await connection.execute("update series set cold_at = cold_at - $1::interval", old)
    for name in range(50):  # much of another tenant
        columns = {f"a{name}": dict.fromkeys(range(100), 1.0)}
        await platform.log(columns, job_id=OTHER_JOB, run_id="run_" + "o" * 26 + "_1")
    await tierer.run()
    retention = Retention(metrics, "t.", ManualClock(), chart_rules(timedelta(days=60)))
    await retention.prune()
    assert await samples(client, "loss") == {}
    assert await platform.count("series", f"job_id = '{JOB}'") == 1, "a chart lasts longer"
    await tierer.run()
    assert len(await store.list("")) == 1, "the file of the other tenant"
    assert await samples(client, "a7", OTHER_JOB) == dict.fromkeys(range(100), 1.0)
    await Retention(metrics, "t.", ManualClock(), chart_rules(timedelta(days=30))).prune()
    assert await platform.count("series", f"job_id = '{JOB}'") == 0
    assert await platform.count("series", f"job_id = '{OTHER_JOB}'") == 50
