"""Charts of many series in one answer, polls for what changed, the list of series."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import httpx
import pytest
import pytest_asyncio

from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.runs import RunLost
from services.metrics import api, streams
from services.metrics.api import read_api
from services.metrics.cold.tiering import Policy, Tierer
from services.metrics.core import levels
from services.metrics.core.buckets import cut
from services.metrics.core.charts import MAX_BYTES
from services.metrics.handlers import HANDLERS, take_reports
from services.metrics.series import curves, rolling
from services.metrics.series.rolling import Roller
from services.metrics.settings import MetricsSettings
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle, handle_batch, make_event
from tests.fakes import InMemoryObjectStore
from tests.handlers.metrics.builders import JOB, NOW, make_heartbeat, make_samples

SETTINGS = MetricsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")

TAKE_REPORTS = partial(take_reports, RunTokens(None))
TAKE = partial(streams.take_samples, RunTokens(None))


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


@pytest.fixture
def store() -> InMemoryObjectStore:
    return InMemoryObjectStore()


@pytest_asyncio.fixture(loop_scope="session")
async def client(metrics: Database, store: InMemoryObjectStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=read_api(metrics, store, SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        yield client


class Writer:
    """Sends batches one after the other, each with the next number."""

    def __init__(
        self, metrics: Database, roller: Roller | None, tierer: Tierer | None = None
    ) -> None:
        self._metrics = metrics
        self._roller = roller
        self._tierer = tierer
        self._batch = 0

    async def __call__(self, columns: dict[str, dict[int, Any]], **fields: Any) -> None:
        self._batch += 1
        batch = make_samples(columns, batch=self._batch, **fields)
        await handle_batch(self._metrics, TAKE, make_event(batch))
        if self._roller is not None:
            await self._roller.roll_all()
        if self._tierer is not None:
            await self._tierer.run()


@pytest.fixture(params=["as it arrives", "in levels", "in the object store"])
def write(
    metrics: Database,
    store: InMemoryObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Writer:
    """What a chart shows does not depend on where its samples are, and whether in levels yet."""
    monkeypatch.setattr(levels, "MIN_SAMPLES", 150)
    monkeypatch.setattr(levels, "MAX_CHUNK_SAMPLES", 100)
    roller = Roller(metrics, SystemClock(), max_age=timedelta(0))
    tierer = Tierer(metrics, store, Policy(after=timedelta(0), max_wait=timedelta(0)))
    return Writer(
        metrics,
        roller if request.param != "as it arrives" else None,
        tierer if request.param == "in the object store" else None,
    )


async def chart(client: httpx.AsyncClient, *names: str, **query: Any) -> Any:
    response = await client.get("/chart", params={"job_id": JOB, "name": names, **query})
    assert response.status_code == 200, response.text
    return response.json()


def points(answer: Any, name: str) -> list[tuple[int, float | None]]:
    curve = answer["series"][name]
    return list(zip(answer["steps"][curve["steps"]], curve["values"], strict=True))


def line(steps: range, value: float = 0.5) -> dict[int, float]:
    return dict.fromkeys(steps, value)


async def test_one_answer_has_dense_series_in_points_and_sparse_ones_exactly(
    write: Writer, client: httpx.AsyncClient
) -> None:
    await write({"loss": line(range(1000)) | {777: 99.0}, "val loss, mAP@0.5": {0: 0.3, 501: 0.1}})
    answer = await chart(client, "loss", "val loss, mAP@0.5", "unknown", max_points=100)
    assert (answer["width"], answer["is_whole"]) == (16, True)
    loss = answer["series"]["loss"]
    steps = answer["steps"][loss["steps"]]
    assert steps == list(range(0, 1000, 16))
    assert max(loss["highs"]) == 99.0, "the peak is seen"
    assert steps[loss["highs"].index(99.0)] == 777 // 16 * 16
    assert loss["values"][0] == 0.5
    assert points(answer, "val loss, mAP@0.5") == [(0, 0.3), (501, 0.1)]
    assert points(answer, "unknown") == []


async def test_a_part_of_the_steps_has_finer_points_and_few_samples_exactly(
    write: Writer, client: httpx.AsyncClient
) -> None:
    await write({"loss": {step: step / 7 for step in range(1000)}})
    part = await chart(client, "loss", max_points=100, from_step=200, to_step=399)
    assert part["width"] == 2
    assert part["steps"][0] == list(range(200, 400, 2))
    exact = await chart(client, "loss", max_points=100, from_step=210, to_step=220)
    assert points(exact, "loss") == [(step, step / 7) for step in range(210, 221)]


async def test_steps_are_those_of_the_last_attempt_and_attempts_are_marked(
    write: Writer, client: httpx.AsyncClient
) -> None:
    await write({"loss": line(range(600)) | {599: 1e9}})
    await write({"loss": line(range(500, 800), 0.25)}, attempt=2)
    answer = await chart(client, "loss", max_points=100)
    assert max(answer["series"]["loss"]["highs"]) == 0.5, "the first attempt's peak is superseded"
    assert answer["attempts"] == [
        {"attempt": 1, "first_step": 0, "last_step": 599},
        {"attempt": 2, "first_step": 500, "last_step": 799},
    ]
    first = await chart(client, "loss", max_points=100, attempt=1)
    assert max(first["series"]["loss"]["highs"]) == 1e9


async def test_values_that_are_not_finite_are_marked(
    write: Writer, client: httpx.AsyncClient
) -> None:
    await write({"loss": line(range(1000)) | {100: "nan", 900: "inf"}, "rate": {1: "nan"}})
    answer = await chart(client, "loss", "rate", max_points=100)
    assert answer["series"]["loss"]["not_finite"] == [100, 900]
    assert None not in answer["series"]["loss"]["values"]
    assert points(answer, "rate") == [(1, None)]


async def test_a_poll_is_answered_by_what_changed(write: Writer, client: httpx.AsyncClient) -> None:
    await write({"loss": line(range(1000)), "rate": {0: 0.1}})
    names = ("loss", "rate")
    whole = await chart(client, *names, max_points=100)
    nothing = await chart(client, *names, max_points=100, after=whole["next"])
    assert (nothing["is_whole"], nothing["series"]) == (False, {})
    await write({"loss": line(range(1000, 1005), 0.25)})
    changed = await chart(client, *names, max_points=100, after=nothing["next"])
    assert list(changed["series"]) == ["loss"]
    assert changed["series"]["loss"]["from_step"] == 992
    assert points(changed, "loss") == [(992, pytest.approx((8 * 0.5 + 5 * 0.25) / 13, rel=1e-5))]
    again = await chart(client, *names, max_points=100)
    assert points(again, "loss")[-1] == points(changed, "loss")[-1]


async def test_a_poll_of_an_exact_series_is_answered_by_all_of_it(
    write: Writer, client: httpx.AsyncClient
) -> None:
    await write({"loss": line(range(95))})
    whole = await chart(client, "loss", max_points=100)
    await write({"loss": {95: 0.1}})
    changed = await chart(client, "loss", max_points=100, after=whole["next"])
    assert changed["series"]["loss"]["from_step"] == 0
    assert len(points(changed, "loss")) == 96


@pytest.mark.parametrize("change", ["width", "attempt", "names", "position"])
async def test_a_poll_for_another_view_is_answered_whole(
    write: Writer, client: httpx.AsyncClient, change: str
) -> None:
    await write({"loss": line(range(90)), "rate": {0: 1.0}})
    position = (await chart(client, "loss", max_points=100))["next"]
    if change == "width":
        await write({"loss": line(range(90, 200))})
    if change == "attempt":
        await write({"loss": {50: 1.0}}, attempt=2)
    names = ("loss", "rate") if change == "names" else ("loss",)
    after = "nonsense" if change == "position" else position
    answer = await chart(client, *names, max_points=100, after=after)
    assert answer["is_whole"]
    assert points(answer, "loss")


async def test_an_answer_that_would_be_too_large_has_fewer_points(
    write: Writer, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves.charts, "MAX_BYTES", 2000)
    await write({"loss": {step: step / 7 for step in range(1000)}})
    response = await client.get("/chart", params={"job_id": JOB, "name": "loss"})
    assert len(response.content) <= 2000 < MAX_BYTES
    answer = response.json()
    assert answer["width"] > 2
    await write({"loss": {1000: 0.5}})
    poll = await chart(client, "loss", after=answer["next"])
    assert (poll["is_whole"], poll["width"]) == (False, answer["width"])


async def test_series_are_listed_by_page_and_by_a_part_of_the_name(
    write: Writer, client: httpx.AsyncClient
) -> None:
    await write({"val loss, mAP@0.5": {5: 0.5}, "accuracy": {1: 0.1}, "loss": {3: 1.0, 4: 0.9}})
    await write({"loss": {4: 0.8}}, attempt=2)
    first = (await client.get("/series", params={"job_id": JOB, "limit": 2})).json()
    assert [one["name"] for one in first["series"]] == ["accuracy", "loss"]
    assert (first["next"], first["num_series"]) == ("loss", 3)
    assert first["series"][1] == {
        "name": "loss",
        "num_samples": 3,
        "first_step": 3,
        "last_step": 4,
        "last_value": 0.8,
    }
    query = {"job_id": JOB, "limit": 2, "after": first["next"]}
    rest = (await client.get("/series", params=query)).json()
    assert ([one["name"] for one in rest["series"]], rest["next"]) == (["val loss, mAP@0.5"], None)
    found = (await client.get("/series", params={"job_id": JOB, "search": "LOSS"})).json()
    assert [one["name"] for one in found["series"]] == ["loss", "val loss, mAP@0.5"]
    assert found["num_series"] == 2


async def test_a_few_reads_run_at_a_time_and_further_ones_are_refused_for_now(
    write: Writer, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "WAIT_SECONDS", 0.0)
    release, num_reading = asyncio.Event(), asyncio.Semaphore(0)
    chart_of = curves.chart

    async def slowly(*arguments: Any) -> bytes:
        num_reading.release()
        await release.wait()
        return await chart_of(*arguments)

    monkeypatch.setattr(curves, "chart", slowly)
    query = {"job_id": JOB, "name": "loss"}
    slow = [asyncio.create_task(client.get("/chart", params=query)) for _ in range(api.MAX_READS)]
    for _ in slow:
        await num_reading.acquire()
    refused = await client.get("/series", params={"job_id": JOB})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["code"] == "too_many_reads"
    release.set()
    assert [(await one).status_code for one in slow] == [200] * api.MAX_READS
    assert (await client.get("/series", params={"job_id": JOB})).status_code == 200


@pytest.mark.parametrize("query", [{}, {"name": ["loss"] * 51}, {"name": "loss", "max_points": 3}])
async def test_a_wrong_query_of_a_chart_names_the_field(
    client: httpx.AsyncClient, query: dict[str, Any]
) -> None:
    response = await client.get("/chart", params={"job_id": JOB, **query})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] in ("name", "max_points")


@pytest.mark.parametrize("seed", range(4))
async def test_a_chart_from_levels_is_that_of_the_samples(
    metrics: Database, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Batches of any size, out of order, of several attempts, added to levels now and then."""
    monkeypatch.setattr(levels, "MIN_SAMPLES", 64)
    monkeypatch.setattr(levels, "MAX_CHUNK_SAMPLES", 100)
    random = Random(seed)
    write = Writer(metrics, None)
    roller = Roller(metrics, SystemClock(), max_age=timedelta(0))
    shown: dict[int, float] = {}
    for attempt in (1, 2, 3):
        first = max(0, len(shown) - random.randrange(400))
        samples = {step: random.gauss(0, 1) for step in range(first, first + 1500)}
        steps = list(samples)
        while steps:
            size = random.choice((1, 7, 300))
            part = [steps.pop(random.randrange(min(3, len(steps)))) for _ in steps[:size]]
            await write({"loss": {step: samples[step] for step in part}}, attempt=attempt)
            if random.random() < 0.3:
                await roller.roll_all()
        shown |= samples
    answer = await chart(client, "loss", max_points=100)
    assert await metrics.pool.fetchval("select count(*) from levels") > 0
    assert await metrics.pool.fetchval("select count(*) from chunks") < 200, "small ones are merged"
    width, loss = answer["width"], answer["series"]["loss"]
    ordered = sorted(shown)
    expected = cut(ordered, [shown[step] for step in ordered], width)
    assert answer["steps"][0] == [one.first_step // width * width for one in expected]
    for name, wanted in (("lows", "low"), ("highs", "high"), ("values", "mean")):
        values = [getattr(one, wanted) for one in expected]
        differing = [
            number
            for number, value in enumerate(values)
            if loss[name][number] != pytest.approx(value, rel=1e-5, abs=1e-5)
        ]
        assert len(differing) <= 2, "only where an attempt begins"
    zoomed = await chart(client, "loss", max_points=100, from_step=1000, to_step=1050)
    assert points(zoomed, "loss") == [(step, shown[step]) for step in range(1000, 1051)]


async def test_a_superseded_peak_is_not_shown_where_an_attempt_began(
    write: Writer, client: httpx.AsyncClient
) -> None:
    """The buckets of the chart are far wider than the steps between the attempts."""
    await write({"loss": line(range(20_000)) | {19_990: 1e9}})
    await write({"loss": line(range(19_700, 20_500), 0.25)}, attempt=2)
    answer = await chart(client, "loss", max_points=16)
    assert answer["width"] == 2048
    assert max(answer["series"]["loss"]["highs"]) == 0.5
    assert answer["series"]["loss"]["lows"][-1] == 0.25


async def test_adding_to_levels_is_done_once_and_in_steps(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "MIN_SAMPLES", 64)
    monkeypatch.setattr(levels, "MAX_NEW_SAMPLES", 100)
    write = Writer(metrics, None)
    for part in range(10):
        await write({"loss": line(range(part * 60, part * 60 + 60))})
    roller = Roller(metrics, SystemClock(), max_age=timedelta(hours=1))
    for _ in range(3):
        await roller.roll_all()
    rows = await metrics.pool.fetch(
        "select level, sum(one) from levels, unnest(num_finite) as one group by level"
    )
    assert {row["sum"] for row in rows} == {600}
    assert await metrics.pool.fetchval("select count(*) from chunks where is_new") == 0


async def test_a_series_waits_until_it_has_enough_new_chunks_or_an_old_one(
    metrics: Database,
) -> None:
    write = Writer(metrics, None)
    await write({"loss": {1: 0.5}})
    new = "select count(*) from chunks where is_new"
    await Roller(metrics, SystemClock(), max_age=timedelta(hours=1)).roll_all()
    assert await metrics.pool.fetchval(new) == 1
    await Roller(metrics, SystemClock(), max_age=timedelta(0)).roll_all()
    assert await metrics.pool.fetchval(new) == 0


async def test_attempts_whose_steps_are_far_apart_and_close_together_are_read_at_once(
    metrics: Database, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bucket of the second attempt covers a billion tiles of the first."""
    monkeypatch.setattr(levels, "MIN_SAMPLES", 150)
    write = Writer(metrics, Roller(metrics, SystemClock(), max_age=timedelta(0)))
    await write({"loss": line(range(4000))})
    await write({"loss": line(range(2000, 4 * 10**15, 10**12), 0.25)}, attempt=2)
    found = points(await chart(client, "loss", max_points=16), "loss")
    assert len(found) <= 16
    assert found[-1][1] == 0.25


async def test_times_are_those_at_which_steps_were_reported(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    async def beat(attempt: int, seconds: float, step: int | None, job_id: str = JOB) -> None:
        beat = make_heartbeat(
            attempt=attempt, step=step, sent_at=NOW + timedelta(seconds=seconds), job_id=job_id
        )
        await handle_batch(metrics, TAKE_REPORTS, make_event(beat))

    for seconds, step in ((0.0, None), (1.0, 10), (2.5, 40), (2.6, 41), (90.0, 42), (91.5, 60)):
        await beat(1, seconds, step)
        await beat(1, seconds, step)
    await beat(2, 100.0, 43)
    await beat(1, 99.0, 5, job_id="job_" + "n" * 26)
    run = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}
    ended = RunLost(**run, detail="its shim died", ended_at=NOW)
    await handle(metrics, HANDLERS, make_event(ended))
    answer = (await client.get("/times", params={"job_id": JOB})).json()
    began = NOW.timestamp()
    assert answer["attempts"] == [
        {
            "attempt": 1,
            "steps": [10, 40, 41, 42, 60],
            "times": [began + seconds for seconds in (1.0, 2.5, 2.6, 90.0, 91.5)],
        },
        {"attempt": 2, "steps": [43], "times": [began + 100.0]},
    ]


async def test_many_points_of_time_are_thinned(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    async with metrics.transaction() as tx:
        await tx.connection.execute(
            "insert into run_times select $1, 1, n, n from generate_series(1, 60000) as n", JOB
        )
    answer = await client.get("/times", params={"job_id": JOB})
    ((steps, times),) = [(one["steps"], one["times"]) for one in answer.json()["attempts"]]
    assert len(answer.content) < MAX_BYTES
    assert len(steps) == len(times) > 5000
    assert steps[-1] == 60_000


async def test_many_small_series_share_transactions(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod of a large run has some; a transaction of its own for each took them all."""
    write, num_pods = Writer(metrics, None), 120
    for part in range(2):
        for pod in range(num_pods):
            await write({"loss": line(range(part * 3, part * 3 + 3))}, rank=pod)
    steps: list[int] = []
    step = rolling._step

    async def counted(tx: Any, keys: Any) -> Any:
        steps.append(len(keys))
        return await step(tx, keys)

    monkeypatch.setattr(rolling, "_step", counted)
    await Roller(metrics, SystemClock(), max_age=timedelta(0)).roll_all()
    assert steps == [50, 50, 20]
    rows = await metrics.pool.fetch("select rank, is_new, steps from chunks order by rank")
    assert [(row["rank"], row["is_new"]) for row in rows] == [(n, False) for n in range(num_pods)]
    assert {tuple(row["steps"]) for row in rows} == {tuple(range(6))}
