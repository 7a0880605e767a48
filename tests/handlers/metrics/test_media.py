"""Media from the records of pods to the answers of the read API."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio
from pydantic import SecretStr

from drivetrain_schemas.ids import job_id_for, run_id_for
from drivetrain_schemas.media import MediaLogged
from services.metrics import media, streams
from services.metrics.api import read_api
from services.metrics.settings import MetricsSettings
from services.runtime.database import Database
from services.runtime.instruments import FORGED
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import emitted, handle_batch, make_event, make_record
from tests.fakes import InMemoryObjectStore
from tests.handlers.metrics.builders import JOB, NOW, make_samples

TOKENS = RunTokens(SecretStr("a-key-that-only-services-have"))
OWN = TOKENS.of(run_id_for(JOB, 1), 1)
SETTINGS = MetricsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")
take_samples = partial(streams.take_samples, RunTokens(None))


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


@pytest_asyncio.fixture(loop_scope="session")
async def client(metrics: Database) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=read_api(metrics, InMemoryObjectStore(), SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        yield client


def make_media(
    name: str, step: int, *, number: int = 1, attempt: int = 1, job_id: str = JOB, **fields: Any
) -> MediaLogged:
    values: dict[str, Any] = {
        "tenant_id": "default",
        "job_id": job_id,
        "run_id": run_id_for(job_id, attempt),
        "attempt": attempt,
        "fence": attempt,
        "name": name,
        "step": step,
        "number": number,
        "media": "text",
        "sha256": "ab" * 32,
        "size_bytes": 5,
        "logged_at": NOW,
    }
    return MediaLogged(**(values | fields))


async def take(metrics: Database, *records: Any) -> None:
    await handle_batch(metrics, take_samples, *map(make_event, records))


async def get(client: httpx.AsyncClient, **query: Any) -> Any:
    response = await client.get("/media", params={"job_id": JOB, **query})
    assert response.status_code == 200, response.text
    return response.json()


async def test_names_and_items_are_read_beside_samples(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    await take(
        metrics,
        make_media("worst", 10, number=1, media="image", image_form="png", caption="<b>a</b>"),
        make_samples({"loss": {10: 0.5}}),
        make_media("worst", 10, number=2, item=1, media="image", image_form="png"),
        make_media("worst", 20, number=3, media="image", image_form="jpeg"),
        make_media("said", 20, number=4),
    )
    names = (await get(client))["names"]
    assert [(one["name"], one["media"], one["num_steps"]) for one in names] == [
        ("said", "text", 1),
        ("worst", "image", 2),
    ]
    assert (names[1]["first_step"], names[1]["last_step"]) == (10, 20)
    items = (await get(client, name="worst"))["items"]
    assert [(one["step"], one["item"], one["image_form"]) for one in items] == [
        (10, 0, "png"),
        (10, 1, "png"),
        (20, 0, "jpeg"),
    ]
    assert items[0]["caption"] == "<b>a</b>"
    assert [one["step"] for one in (await get(client, name="worst", limit=1))["items"]] == [20]
    before = await get(client, name="worst", limit=1, to_step=19)
    assert {one["step"] for one in before["items"]} == {10}
    samples = await client.get("/samples", params={"job_id": JOB})
    assert samples.json()["series"]["loss"]["values"] == [0.5]


async def test_after_a_resume_a_step_shows_what_its_highest_attempt_logged(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    """Also where that is less; and the steps that were not repeated stay."""
    await take(
        metrics,
        *(make_media("a", 10, number=n, item=n, sha256="11" * 32) for n in range(3)),
        make_media("a", 20, number=3, sha256="11" * 32),
    )
    await take(metrics, make_media("a", 10, attempt=2, sha256="22" * 32))
    await take(metrics, make_media("a", 10, number=4, item=5))  # late, of the first attempt
    items = (await get(client, name="a"))["items"]
    assert [(one["step"], one["attempt"], one["sha256"][:2]) for one in items] == [
        (10, 2, "22"),
        (20, 1, "11"),
    ]


async def test_what_was_logged_last_for_a_place_counts_in_any_order(
    metrics: Database, client: httpx.AsyncClient
) -> None:
    first, last = (make_media("a", 1, number=n, sha256=f"{n}{n}" * 32) for n in (1, 2))
    for order in ((first, last, first), (last, first, last)):
        await take(metrics, *order)
        (item,) = (await get(client, name="a"))["items"]
        assert item["sha256"][:2] == "22"


async def test_a_job_has_only_so_many(
    metrics: Database, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "MAX_ITEMS_OF_JOB", 3)
    other = job_id_for("default", "another")
    await take(metrics, make_media("a", 1), make_media("a", 2))
    await take(metrics, *(make_media("a", step) for step in (2, 3, 4)))
    await take(metrics, make_media("a", 5))
    await take(metrics, make_media("a", 1, job_id=other))
    assert [event.payload.alert for event in await emitted(metrics)] == ["samples_dropped"]
    assert [one["step"] for one in (await get(client, name="a"))["items"]] == [1, 2, 3]
    answer = await client.get("/media", params={"job_id": other})
    assert len(answer.json()["names"]) == 1


@pytest.mark.parametrize(
    ("fields", "token"),
    [
        ({}, None),
        ({}, "0" * 32),
        ({"attempt": 2}, OWN),
        ({"fence": 2}, OWN),
        ({"job_id": job_id_for("default", "another")}, OWN),
    ],
)
async def test_a_pod_logs_only_for_its_own_run(
    metrics: Database, client: httpx.AsyncClient, fields: dict[str, Any], token: str | None
) -> None:
    count = FORGED.labels("media.logged")._value
    before = count.get()
    records = [
        make_record(replace(make_event(payload), run_token=of), offset=offset)
        for offset, (payload, of) in enumerate(
            [(make_media("false", 1, **fields), token), (make_media("true", 1), OWN)]
        )
    ]
    async with metrics.transaction() as tx:
        assert await streams.take_samples(TOKENS, tx, records) == []
    assert count.get() == before + 1
    assert [one["name"] for one in (await get(client))["names"]] == ["true"]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a\u0000b"},
        {"name": "a\u202eb"},
        {"media": "page"},
        {"image_form": "svg"},
        {"sha256": "../../secret"},
        {"size_bytes": 25_000_001},
        {"item": 64},
        {"caption": "c" * 501},
    ],
)
async def test_a_record_that_is_not_valid_is_parked_and_others_are_stored(
    metrics: Database, client: httpx.AsyncClient, change: dict[str, Any]
) -> None:
    good = make_record(make_event(make_media("good", 1)))
    value = json.dumps(json.loads(good.value or b"") | change).encode()
    async with metrics.transaction() as tx:
        rejected = await streams.take_samples(
            RunTokens(None), tx, [replace(good, value=value), replace(good, offset=1)]
        )
    assert len(rejected) == 1
    assert [one["name"] for one in (await get(client))["names"]] == ["good"]


async def test_many_records_cost_no_more_statements_than_few(metrics: Database) -> None:
    """The samples of others are stored behind them."""
    numbers = []
    for num in (1, 2, 200):  # the first one also asks for the types of columns
        records = [make_record(make_event(make_media("x", n, number=num))) for n in range(num)]
        async with metrics.transaction() as tx:
            logged: list[Any] = []
            with tx.connection.query_logger(logged.append):
                assert not await take_samples(tx, records)
            numbers.append(len(logged))
    assert numbers[1] == numbers[2] > 0
