"""Curves of several jobs in buckets of steps or time, wherever their samples are."""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio

from drivetrain_schemas.ids import run_id_for
from services.metrics import streams
from services.metrics.api import read_api
from services.metrics.cold.tiering import Policy, Tierer
from services.metrics.core import bucketing, levels
from services.metrics.series import bucket_store, buckets
from services.metrics.series.rolling import Roller
from services.metrics.settings import MetricsSettings
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from services.runtime.testing import InMemoryObjectStore
from tests.conftest import OpenDatabase
from tests.events import handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_samples

SETTINGS = MetricsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")
TAKE = partial(streams.take_samples, RunTokens(None))
OTHER_JOB = "job_" + "o" * 26


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


class World:
    def __init__(self, metrics: Database, client: httpx.AsyncClient, place: str) -> None:
        self._metrics = metrics
        self._client = client
        self._place = place
        self._batch = 0
        self.store = InMemoryObjectStore()

    async def log(self, columns: dict[str, dict[int, Any]], **fields: Any) -> None:
        self._batch += 1
        batch = make_samples(columns, batch=self._batch, **fields)
        await handle_batch(self._metrics, TAKE, make_event(batch))
        if self._place != "as it arrives":
            await Roller(self._metrics, SystemClock(), max_age=timedelta(0)).roll_all()
        if self._place == "in the object store":
            policy = Policy(after=timedelta(0), max_wait=timedelta(0))
            await Tierer(self._metrics, self.store, policy).run()

    async def at(self, job_id: str, attempt: int, points: dict[int, float]) -> None:
        """When an attempt was at which step."""
        async with self._metrics.connection() as connection:
            await connection.executemany(
                "insert into run_times (job_id, attempt, step, at) values ($1, $2, $3, $4)",
                [(job_id, attempt, step, at) for step, at in points.items()],
            )

    async def get(self, **query: Any) -> httpx.Response:
        return await self._client.get("/curves", params={"job_id": JOB, "name": "loss"} | query)

    async def curves(self, **query: Any) -> Any:
        answer = await self.get(**query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def curve(self, **query: Any) -> Any:
        [curve] = (await self.curves(**query))["curves"]
        return curve


@pytest_asyncio.fixture(
    loop_scope="session", params=["as it arrives", "in levels", "in the object store"]
)
async def world(
    metrics: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    monkeypatch.setattr(levels, "MIN_SAMPLES", 150)
    store = InMemoryObjectStore()
    transport = httpx.ASGITransport(app=read_api(metrics, store, SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        world = World(metrics, client, request.param)
        world.store = store
        yield world


async def test_buckets_hide_no_peak_and_have_the_mean(world: World) -> None:
    values = {step: float(step % 10) for step in range(4000)} | {1234: 99.0, 3000: "nan"}
    await world.log({"loss": values})
    answer = await world.curves(num_buckets=64)
    assert (answer["by"], answer["start"], answer["width"]) == ("step", 0, 64)
    [curve] = answer["curves"]
    assert curve["x"] == list(range(0, 4000, 64))
    assert max(curve["highs"]) == 99.0
    assert curve["highs"].index(99.0) == 1234 // 64
    assert set(curve["lows"]) == {0.0}
    assert curve["means"][0] == pytest.approx(sum(step % 10 for step in range(64)) / 64)
    assert curve["not_finite"] == [3000 // 64 * 64]


async def test_a_part_with_few_samples_is_exact(world: World) -> None:
    await world.log({"loss": {step: step / 7 for step in range(4000)} | {1005: "inf"}})
    curve = await world.curve(num_buckets=100, start=1000, end=1010)
    assert curve["is_exact"]
    assert curve["x"] == list(range(1000, 1011))
    assert curve["means"][:2] == [1000 / 7, 1001 / 7]
    assert (curve["means"][5], curve["not_finite"]) == (None, [1005])


@pytest.mark.parametrize("num_buckets", [16, 64, 2000])
async def test_steps_are_those_of_the_last_attempt(world: World, num_buckets: int) -> None:
    await world.log({"loss": dict.fromkeys(range(3000), 1.0) | {1100: 50.0, 2999: 7.0}})
    await world.log({"loss": dict.fromkeys(range(1000, 2000), 2.0)}, attempt=2)
    curve = await world.curve(num_buckets=num_buckets)
    highs = curve["highs"] or curve["means"]
    assert 50.0 not in highs, "a superseded peak"
    assert 7.0 in highs, "what only the first attempt logged"
    second = await world.curve(num_buckets=num_buckets, start=1100, end=1900)
    assert set(second["means"]) == {2.0}


async def test_an_attempt_that_is_wholly_replaced_is_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in (1, 2, 3):
        await world.log({"loss": dict.fromkeys(range(200 * attempt), 1.0)}, attempt=attempt)
    read = []
    cold_chunks = bucket_store.cold_chunks

    async def noted(connection: Any, rank: int, wanted: Any) -> Any:
        read.extend(one.run_id for one in wanted)
        return await cold_chunks(connection, rank, wanted)

    monkeypatch.setattr(bucket_store, "cold_chunks", noted)
    assert len((await world.curve(num_buckets=2000))["x"]) == 600
    assert read == [run_id_for(JOB, 3)]


@pytest.mark.parametrize("num_samples", [20, 200], ids=["samples", "levels"])
async def test_attempts_are_read_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, num_samples: int
) -> None:
    """A part by itself, twenty series of a run that restarted 500 times would take seconds."""
    new = num_samples // 2  # of each attempt; the others repeat those of the one before
    for attempt in range(1, 9):
        steps = range(attempt * new, attempt * new + num_samples)
        for name in ("loss", "accuracy"):
            await world.log({name: dict.fromkeys(steps, attempt)}, attempt=attempt)
    calls = []
    apart = bucketing._apart
    monkeypatch.setattr(bucketing, "_apart", lambda *given: calls.append(1) or apart(*given))
    answer = await world.curves(name=["loss", "accuracy"], num_buckets=100)
    for curve in answer["curves"]:
        means = dict(zip(curve["x"], curve["means"], strict=True))
        last = answer["width"] - 1
        whole = {x for x in means if x // new == (x + last) // new}
        assert len(whole) > 40
        assert {x: means[x] for x in whole} == {x: min(x // new, 8) for x in whole}
    assert len(calls) <= 6, "of each curve: samples, rows of a level, and finer ones"


async def test_more_short_attempts_than_one_request_reads_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MAX_SAMPLES", 250)
    for attempt in (1, 2, 3):
        steps = range(100 * attempt, 100 * attempt + 100)
        await world.log({"loss": dict.fromkeys(steps, 1.0)}, attempt=attempt)
    answer = await world.get()
    assert (answer.status_code, answer.json()["code"]) == (422, "too_many_samples")
    assert "300 samples" in answer.json()["detail"]
    assert len((await world.curve(start=100, end=250))["x"]) > 0


async def test_by_time_pauses_are_seen_and_relative_times_begin_at_zero(world: World) -> None:
    await world.log({"loss": dict.fromkeys(range(1000), 1.0)})
    await world.log({"loss": dict.fromkeys(range(500, 1000), 2.0)}, attempt=2)
    other = {"job_id": OTHER_JOB, "run_id": run_id_for(OTHER_JOB, 1)}
    await world.log({"loss": dict.fromkeys(range(1000), 3.0)}, **other)
    await world.at(JOB, 1, {0: 5000.0, 999: 5999.0})
    await world.at(JOB, 2, {500: 9000.0, 999: 9499.0})
    await world.at(OTHER_JOB, 1, {0: 100.0, 999: 2098.0})
    curve = await world.curve(by="time", num_buckets=100)
    times = curve["x"]
    assert times[0] == pytest.approx(5000.0)
    assert not [x for x in times if 5560 < x < 8940], "the pause, and what was logged again"
    assert {round(mean) for mean in curve["means"]} == {1, 2}
    answer = await world.curves(by="relative", job_id=[JOB, OTHER_JOB], num_buckets=100)
    first, second = answer["curves"]
    assert (first["job_id"], second["job_id"]) == (JOB, OTHER_JOB)
    assert first["x"][0] == second["x"][0] == 0.0
    assert second["x"][-1] == pytest.approx(1998, abs=2 * answer["width"])
    part = await world.curve(by="relative", job_id=OTHER_JOB, start=400, end=500)
    assert part["is_exact"]
    assert part["x"][0] == pytest.approx(400, abs=4)
    assert part["x"][-1] == pytest.approx(500, abs=4)


async def test_series_that_are_not_there_are_left_out(world: World) -> None:
    await world.log({"loss": {1: 0.5}})
    answer = await world.curves(name=["accuracy", "loss"], job_id=[OTHER_JOB, JOB])
    assert [(one["job_id"], one["name"]) for one in answer["curves"]] == [(JOB, "loss")]
    assert (await world.curves(name="accuracy"))["curves"] == []
    assert (await world.curves(by="time"))["curves"] == [], "no pod has reported a step"
