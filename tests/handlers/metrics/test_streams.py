"""Samples and logs from a batch of records to the answers of the read API."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio

from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import AlertRaised, SamplesRecorded
from services.metrics import store, streams
from services.metrics.api import read_api
from services.metrics.logs import pages as log_pages
from services.metrics.logs import store as log_store
from services.metrics.messages import MAX_COUNT
from services.metrics.series import names
from services.metrics.series.copying import ChunkRow
from services.metrics.series.queries import MAX_SERIES
from services.metrics.settings import MetricsSettings
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle_batch, make_event, make_record
from tests.fakes import InMemoryObjectStore
from tests.handlers.metrics.builders import JOB, make_logs, make_samples

UNKEYED = RunTokens(None)
take_samples = partial(streams.take_samples, UNKEYED)
take_logs = partial(streams.take_logs, UNKEYED)
RUN = run_id_for(JOB, 1)
SETTINGS = MetricsSettings(
    kafka_bootstrap_servers="none:1", postgres_dsn="none", max_samples_read=1000
)


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


@pytest_asyncio.fixture(loop_scope="session")
async def client(metrics: Database) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=read_api(metrics, InMemoryObjectStore(), SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        yield client


async def take(metrics: Database, *batches: SamplesRecorded) -> list[Any]:
    return await handle_batch(metrics, take_samples, *map(make_event, batches))


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    response = await client.get(path, params={"job_id": JOB, **query})
    assert response.status_code == 200, response.text
    return response.json()


async def test_samples_are_read_as_they_were_logged(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(
        metrics,
        make_samples({"loss": {1: 0.9, 2: 0.8}, "accuracy": {2: 0.5}}, batch=0),
        make_samples({"loss": {3: 0.7}}, batch=1),
    )
    answer = await get(client, "/samples")
    assert answer["series"]["loss"]["steps"] == [1, 2, 3]
    assert answer["series"]["loss"]["values"] == [0.9, 0.8, 0.7]
    assert answer["series"]["accuracy"]["steps"] == [2]


async def test_numbers_and_names_are_stored_bit_by_bit(metrics: Database) -> None:
    """Chunks are written as Postgres's binary form, by `copying`."""
    values = [-0.0, 5e-324, 1.7976931348623157e308, math.pi, math.nan, math.inf, -math.inf]
    steps = [2**53, 0, 1, 2, 3, 4, 5]
    plain = ChunkRow(JOB, RUN, 999_999, 99_999, "loss", 7, 0, 2**53, steps, values)
    one = ChunkRow(JOB, RUN, 1, 0, "Verlust \u00fc \U0001f600", 1, 7, 7, [7], [0.1])
    async with metrics.transaction() as tx:
        await store.insert_chunks(tx.connection, [plain, one])
        rows = await tx.connection.fetch(
            f"select {', '.join(ChunkRow._fields)} from chunks order by id"
        )
        assert await tx.connection.fetchval("select sum(values[1]) from chunks") == 0.1
    assert [repr(tuple(row)) for row in rows] == [repr(tuple(plain)), repr(tuple(one))]


async def test_a_batch_sent_again_adds_nothing(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    batch = make_samples({"loss": {1: float(1), 2: "nan"}})
    first = await take(metrics, batch, batch)
    second = await take(metrics, batch)
    assert [type(event) for event in (*first, *second)] == [AlertRaised]
    (series,) = (await get(client, "/series"))["series"]
    assert (series["num_samples"], series["last_value"]) == (2, "nan")


async def test_batches_differ_by_run_rank_session_and_number(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(
        metrics,
        make_samples({"loss": {1: 0.1}}),
        make_samples({"loss": {2: 0.2}}, batch=1),
        make_samples({"loss": {3: 0.3}}, session="s2"),
        make_samples({"loss": {4: 0.4}}, attempt=2),
        make_samples({"loss": {5: 0.5}}, rank=1),
    )
    assert (await get(client, "/samples"))["series"]["loss"]["steps"] == [1, 2, 3, 4]
    assert (await get(client, "/samples", rank=1))["series"]["loss"]["steps"] == [5]


async def test_every_step_is_answered_once_by_the_highest_attempt(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    """What a zombie of the first run still sends does not hide the second run's samples."""
    await take(metrics, make_samples({"loss": {1: 1.0, 2: 0.9, 3: 0.8}}, attempt=1))
    await take(metrics, make_samples({"loss": {2: 0.95, 3: 0.85, 4: 0.7}}, attempt=2))
    await take(metrics, make_samples({"loss": {3: 9.0, 5: 0.6}}, attempt=1, batch=7))
    series = (await get(client, "/samples"))["series"]["loss"]
    assert series["steps"] == [1, 2, 3, 4, 5]
    assert series["values"] == [1.0, 0.95, 0.85, 0.7, 0.6]


async def test_the_range_of_steps_and_the_names_are_kept_to(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(
        metrics,
        make_samples({"loss": {step: step / 10 for step in range(10)}, "rate": {0: 1.0}}),
    )
    answer = await get(client, "/samples", names="loss,unknown", from_step=3, to_step=5)
    assert list(answer["series"]) == ["loss", "unknown"]
    assert answer["series"]["loss"]["steps"] == [3, 4, 5]
    assert answer["series"]["unknown"]["steps"] == []


async def test_a_name_with_commas_is_read_by_a_parameter_of_its_own(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(metrics, make_samples({"mAP@0.5, val": {1: 0.1}, "loss": {1: 0.9}}))
    names = ["mAP@0.5, val", "mAP@0.5, val", "unknown"]
    series = (await get(client, "/samples", name=names))["series"]
    assert {name: one["values"] for name, one in series.items()} == {names[0]: [0.1], "unknown": []}


async def test_the_samples_of_one_run_are_read_alone(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(metrics, make_samples({"loss": {1: 1.0, 2: 0.9, 3: 0.8}, "old": {1: 0.0}}))
    await take(metrics, make_samples({"loss": {3: 0.85, 4: 0.7}}, attempt=2))
    first = (await get(client, "/samples", attempt=1))["series"]
    assert first["loss"]["values"] == [1.0, 0.9, 0.8]
    second = (await get(client, "/samples", attempt=2))["series"]
    assert list(second) == ["loss"]
    assert second["loss"]["values"] == [0.85, 0.7]


async def test_of_too_many_series_the_first_are_answered_and_the_others_counted(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    names = [f"layer_{number:03d}" for number in range(MAX_SERIES + 7)]
    await take(metrics, make_samples({name: {1: 0.5} for name in names}))
    answer = await get(client, "/samples")
    assert list(answer["series"]) == names[:MAX_SERIES]
    assert answer["num_series_left_out"] == 7
    assert (await get(client, "/samples", names="layer_001"))["num_series_left_out"] == 0


async def test_values_that_are_not_finite_are_kept_and_written_as_words(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(metrics, make_samples({"loss": {1: "nan", 2: "inf", 3: "-inf", 4: 0.5}}))
    series = (await get(client, "/samples"))["series"]["loss"]
    assert series["values"] == ["nan", "inf", "-inf", 0.5]


async def test_a_long_series_is_thinned_and_keeps_its_peak(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    values = dict.fromkeys(range(900), 0.5) | {777: 99.0}
    await take(metrics, make_samples({"loss": values}))
    series = (await get(client, "/samples", max_points=50))["series"]["loss"]
    assert len(series["steps"]) <= 50
    assert 99.0 in series["values"]
    assert (series["num_samples"], series["is_downsampled"]) == (900, True)


async def test_of_more_samples_than_one_request_may_read_the_last_are_read(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(
        metrics,
        *(
            make_samples(
                {"loss": dict.fromkeys(range(part * 400, part * 400 + 400), 0.5)}, batch=part
            )
            for part in range(4)
        ),
    )
    series = (await get(client, "/samples", max_points=5000))["series"]["loss"]
    assert series["read_from_step"] == 800
    assert series["steps"] == list(range(800, 1600))


async def test_the_first_value_that_is_not_finite_is_alerted_once_per_run_and_series(
    metrics: Database,
) -> None:
    emitted = await take(metrics, make_samples({"loss": {1: 0.5, 2: "nan", 3: "inf"}}))
    assert [(alert.alert, alert.series, alert.step) for alert in emitted] == [
        ("not_finite", "loss", 2)
    ]
    assert await take(metrics, make_samples({"loss": {4: "nan"}}, batch=1)) == []
    again = await take(
        metrics,
        make_samples({"rate": {4: "-inf"}}, batch=2),
        make_samples({"loss": {4: "nan"}}, attempt=2),
    )
    assert [(alert.run_id, alert.series) for alert in again] == [
        (run_id_for(JOB, 1), "rate"),
        (run_id_for(JOB, 2), "loss"),
    ]


async def test_a_run_has_a_bounded_number_of_alerts(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may name its series as it likes, and alerts are kept for ever."""
    monkeypatch.setattr(store, "MAX_ALERTS_OF_RUN", 2)
    emitted = await take(metrics, make_samples({f"loss_{n}": {1: "nan"} for n in range(4)}))
    assert [alert.series for alert in emitted] == ["loss_0", "loss_1"]
    assert await take(metrics, make_samples({"rate": {1: "nan"}}, batch=1)) == []
    assert len(await take(metrics, make_samples({"rate": {1: "nan"}}, attempt=2))) == 1


async def test_a_job_has_a_bounded_number_of_series(
    metrics: Database, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first names are kept, whichever run or rank logs them; the rest is counted and told."""
    monkeypatch.setattr(names, "MAX_SERIES_OF_JOB", 3)
    (alert,) = await take(
        metrics, make_samples({f"image_{n}": {1: 0.5, 2: 0.5} for n in (9, 1, 5, 2)})
    )
    assert alert.alert == "samples_dropped"
    assert "a job may have 3 series; samples of further ones, such as image_2" in alert.detail
    again = make_samples({"image_7": {3: 0.5}, "image_1": {3: 0.5}}, batch=1)
    assert await take(metrics, again) == [], "told once"
    (other_run,) = await take(metrics, make_samples({"image_8": {4: 0.5}}, attempt=2, rank=1))
    assert other_run.run_id == run_id_for(JOB, 2)
    found = await get(client, "/series")
    assert [(one["name"], one["num_samples"]) for one in found["series"]] == [
        ("image_1", 3),
        ("image_5", 2),
        ("image_9", 2),
    ]
    assert found["num_samples_left_out"] == 4
    other_job = "job_" + "n" * 26
    assert await take(metrics, make_samples({"loss": {1: 0.5}}, job_id=other_job)) == []


@pytest.mark.parametrize("name", ["a\\u0007b", "a\\u0000b", "line\\nbreak", "half \\ud800"])
async def test_names_with_control_characters_are_refused_and_harm_no_other_batch(
    metrics: Database, client: httpx.AsyncClient, name: str
) -> None:
    good = make_record(make_event(make_samples({"loss": {1: 0.5}})), offset=0)
    plain = make_record(make_event(make_samples({"a_name": {1: 0.5}}, batch=1)), offset=1)
    assert plain.value is not None
    bad = replace(plain, value=plain.value.replace(b"a_name", name.encode()))
    async with metrics.transaction() as tx:
        rejected = await take_samples(tx, [bad, good])
    assert [one.record.offset for one in rejected] == [1]
    assert [one["name"] for one in (await get(client, "/series"))["series"]] == ["loss"]


async def test_ten_thousand_series_of_a_job_are_bounded_and_counted(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    for number in range(0, 10_000, 1000):
        columns = {f"image_{number + n}": {1: 0.5} for n in range(1000)}
        await take(metrics, make_samples(columns, batch=number))
    found = await get(client, "/series")
    assert (found["num_series"], found["num_samples_left_out"]) == (2000, 8000)


async def test_what_cannot_be_read_is_handed_back_and_the_rest_is_stored(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    good = make_record(make_event(make_samples({"loss": {1: 0.5}})), offset=0)
    bad = make_record(make_event(make_logs(["not samples"])), topic=good.topic, offset=1)
    async with metrics.transaction() as tx:
        rejected = await take_samples(tx, [bad, good])
    assert [(one.record.offset, one.reason) for one in rejected] == [(1, "unknown_type")]
    assert (await get(client, "/samples"))["series"]["loss"]["steps"] == [1]


async def test_logs_of_all_ranks_have_one_order_that_can_be_followed(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await handle_batch(
        metrics,
        take_logs,
        make_event(make_logs(["a0", "a1"], rank=0)),
        make_event(make_logs(["b0"], rank=1)),
        make_event(make_logs(["a2"], rank=0, batch=1, first_line=2)),
    )
    page = await get(client, "/logs", limit=3)
    assert [line["line"] for line in page["lines"]] == ["a0", "a1", "b0"]
    assert page["next"] == 3
    rest = await get(client, "/logs", after=page["next"])
    assert rest["lines"] == [
        {"position": 3, "attempt": 1, "rank": 0, "number": 2, "line": "a2", "level": None}
    ]
    assert (await get(client, "/logs", after=rest["next"]))["lines"] == []
    await handle_batch(
        metrics, take_logs, make_event(make_logs(["c0"], attempt=2, num_dropped_bytes=12))
    )
    followed = await get(client, "/logs", after=rest["next"])
    assert [(line["attempt"], line["line"]) for line in followed["lines"]] == [(2, "c0")]
    assert (followed["num_lines"], followed["num_dropped_bytes"]) == (5, 12)


async def test_dropped_bytes_of_many_batches_fit_into_a_number(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    """Each is as large as the contract allows; their sum needs more than 64 bits."""
    batches = [make_logs(["x"], batch=n, num_dropped_bytes=MAX_COUNT) for n in range(1025)]
    await handle_batch(metrics, take_logs, *map(make_event, batches))
    page = await get(client, "/logs", limit=1)
    assert (page["num_lines"], page["num_dropped_bytes"]) == (1025, MAX_COUNT)


async def test_lines_that_a_pod_left_out_are_told_once_per_run(metrics: Database) -> None:
    cut = [make_event(make_logs(["x"], batch=n, num_dropped_bytes=n)) for n in range(3)]
    (told,) = await handle_batch(metrics, take_logs, *cut)
    assert told.alert == "log_dropped"
    other_run = make_event(make_logs(["x"], attempt=2, num_dropped_bytes=1))
    assert len(await handle_batch(metrics, take_logs, *cut, other_run)) == 1


async def test_logs_sent_again_add_nothing(metrics: Database, client: httpx.AsyncClient) -> None:
    lines = make_event(make_logs(["once"]))
    await handle_batch(metrics, take_logs, lines, lines)
    await handle_batch(metrics, take_logs, lines)
    assert [line["line"] for line in (await get(client, "/logs"))["lines"]] == ["once"]


async def test_the_tail_of_one_ranks_log(metrics: Database, client: httpx.AsyncClient) -> None:
    for number in range(5):
        await handle_batch(
            metrics,
            take_logs,
            make_event(make_logs([f"a{number}"], rank=0, batch=number, first_line=number)),
            make_event(make_logs([f"b{number}"], rank=1, batch=number, first_line=number)),
        )
    tail = await get(client, "/logs", rank=1, tail=2)
    assert [line["line"] for line in tail["lines"]] == ["b3", "b4"]
    page = await get(client, "/logs", rank=0, limit=2)
    assert [line["line"] for line in page["lines"]] == ["a0", "a1"]
    page = await get(client, "/logs", rank=0, limit=2, after=page["next"])
    assert [line["line"] for line in page["lines"]] == ["a2", "a3"]


async def write_chunks(metrics: Database, count: int) -> None:
    """Chunk `n` holds the lines `n.0` and `n.1`, of 100 characters each."""
    lines = [[f"{number}.{index}".ljust(100) for index in (0, 1)] for number in range(count)]
    batches = [make_logs(two, batch=n, first_line=2 * n) for n, two in enumerate(lines)]
    await handle_batch(metrics, take_logs, *map(make_event, batches))


@pytest.fixture
def chunks_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the chunks that requests have read."""
    read: list[int] = []

    def watch(name: str) -> None:
        chunks_of = getattr(log_store, name)

        async def watched(*arguments: Any) -> Any:
            chunks = await chunks_of(*arguments)
            read.extend(chunk.first_position for chunk in chunks)
            return chunks

        monkeypatch.setattr(log_store, name, watched)

    watch("chunks_after")
    watch("chunks_before")
    monkeypatch.setattr(log_store, "SLICE_BYTES", 201)  # of one chunk
    return read


@pytest.mark.parametrize(
    ("query", "lines", "read"),
    [
        ({"limit": 3}, ["0.0", "0.1", "1.0"], [0, 2]),
        ({"limit": 3, "after": 7}, ["3.1", "4.0", "4.1"], [6, 8]),
        ({"tail": 3}, ["18.1", "19.0", "19.1"], [38, 36]),
    ],
)
async def test_no_more_logs_are_read_than_are_shown(
    metrics: Database, client: httpx.AsyncClient, chunks_read, query, lines, read
) -> None:
    await write_chunks(metrics, 20)
    page = await get(client, "/logs", **query)
    assert [line["line"].strip() for line in page["lines"]] == lines
    assert chunks_read == read


@pytest.mark.parametrize(
    ("query", "lines", "read"),
    [
        ({}, ["0.0", "0.1", "1.0"], [0, 2]),
        ({"tail": 5000}, ["18.1", "19.0", "19.1"], [38, 36]),
    ],
)
async def test_a_page_of_logs_ends_with_the_line_that_makes_it_too_large(
    metrics: Database, client: httpx.AsyncClient, monkeypatch, chunks_read, query, lines, read
) -> None:
    monkeypatch.setattr(log_pages, "MAX_PAGE_CHARACTERS", 250)
    await write_chunks(metrics, 20)
    page = await get(client, "/logs", **query)
    assert [line["line"].strip() for line in page["lines"]] == lines
    assert page["next"] == page["lines"][-1]["position"] + 1
    assert chunks_read == read


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/samples", {"job_id": "job_x"}),
        ("/samples", {"max_points": "1"}),
        ("/samples", {"from_step": "-1"}),
        ("/samples", {"nmaes": "loss"}),
        ("/samples", {"attempt": "0"}),
        ("/samples", {"names": ",".join(map(str, range(MAX_SERIES + 1)))}),
        ("/samples", {"names": "x" * 8193}),
        ("/samples", {"name": ["loss"] * (MAX_SERIES + 1)}),
        ("/logs", {"limit": "1000000"}),
        ("/series", {"rank": "one"}),
    ],
)
async def test_a_wrong_query_is_answered_by_naming_the_field(
    client: httpx.AsyncClient, path: str, query: dict[str, str]
) -> None:
    response = await client.get(path, params={"job_id": JOB, **query})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert [error["field"] for error in response.json()["errors"]] == list(query)
