"""Search in the lines of a job: by text, rank, attempt, level and time, in bounded pieces."""

# ruff: noqa: F811  (fixtures of other modules)

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.metrics.logs import pages as log_pages
from tests.events import handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_logs
from tests.handlers.metrics.test_streams import client, get, metrics, take_logs  # noqa: F401


async def write(metrics, *batches: tuple[list[str], dict[str, Any]]) -> None:
    events = [
        make_event(make_logs(lines, batch=number, **fields))
        for number, (lines, fields) in enumerate(batches)
    ]
    await handle_batch(metrics, take_logs, *events)


async def texts(client, **query: Any) -> list[str]:
    return [line["line"] for line in (await get(client, "/logs", **query))["lines"]]


@pytest.fixture
def lines() -> tuple[tuple[list[str], dict[str, Any]], ...]:
    return (
        (["INFO:root:Begin", "step 1 Loss 0.5"], {"rank": 0}),
        (["WARNING:root:slow disk"], {"rank": 1}),
        (["step 2 loss 0.4", "Traceback (most recent call last):", "  in x"], {"rank": 0}),
        (["step 2 loss 0.3", "ERROR:root:begin again"], {"rank": 0, "attempt": 2}),
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"search": "LOSS"}, ["step 1 Loss 0.5", "step 2 loss 0.4", "step 2 loss 0.3"]),
        ({"search": "loss", "attempt": 1}, ["step 1 Loss 0.5", "step 2 loss 0.4"]),
        ({"search": "begin", "level": "error"}, ["ERROR:root:begin again"]),
        ({"level": "warning", "rank": 1}, ["WARNING:root:slow disk"]),
        ({"level": "error"}, ["Traceback (most recent call last):", "ERROR:root:begin again"]),
        ({"search": "%"}, []),
        ({"search": "loss", "tail": 1}, ["step 2 loss 0.3"]),
        ({"search": "loss", "tail": 1, "before": 6}, ["step 2 loss 0.4"]),
        ({"search": "loss", "after": 2, "limit": 1}, ["step 2 loss 0.4"]),
    ],
)
async def test_lines_are_found(metrics, client, lines, query, found) -> None:
    await write(metrics, *lines)
    assert await texts(client, **query) == found


async def test_a_line_has_its_level(metrics, client, lines) -> None:
    await write(metrics, *lines)
    levels = [line["level"] for line in (await get(client, "/logs"))["lines"]]
    assert levels == ["info", None, "warning", None, "error", None, None, "error"]


async def test_lines_of_a_time_of_arrival(metrics, client, lines) -> None:
    await write(metrics, lines[0])
    async with metrics.connection() as connection:
        await connection.execute(
            "update log_chunks set received_at = received_at - interval '1 day'"
        )
    await handle_batch(metrics, take_logs, make_event(make_logs(["today"], batch=9)))
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert await texts(client, since=hour_ago) == ["today"]
    assert await texts(client, until=hour_ago, tail=1) == ["step 1 Loss 0.5"]


async def test_a_search_reads_a_bounded_amount_and_says_how_far_it_came(
    metrics,
    client,
    monkeypatch,
) -> None:
    monkeypatch.setattr(log_pages, "MAX_SEARCHED_CHARACTERS", 500)
    batches = [([f"line {n}".ljust(100), f"needle {n}"], {}) for n in range(20)]
    await write(metrics, *batches)
    found: list[str] = []
    after, num_requests, is_complete = 0, 0, False
    while not is_complete:
        page = await get(client, "/logs", search="needle", after=after)
        found += [line["line"] for line in page["lines"]]
        assert page["next"] > after
        after, is_complete, num_requests = page["next"], page["is_complete"], num_requests + 1
    assert (found, after) == ([f"needle {n}" for n in range(20)], 40)
    assert num_requests >= 4
    page = await get(client, "/logs", search="needle 0", tail=1)
    assert (page["lines"], page["is_complete"], page["next"]) == ([], False, 40)
    while not page["lines"]:
        before = page["searched_from"]
        page = await get(client, "/logs", search="needle 0", tail=1, before=before)
    assert page["lines"][0]["position"] == 1


async def test_a_search_is_followed_from_where_it_ended(metrics, client, lines) -> None:
    await write(metrics, *lines)
    page = await get(client, "/logs", search="begin", tail=10)
    assert page["next"] == 8
    await handle_batch(metrics, take_logs, make_event(make_logs(["x", "BEGIN"], batch=9)))
    page = await get(client, "/logs", search="begin", after=page["next"])
    assert [line["position"] for line in page["lines"]] == [9]
    assert (page["next"], page["is_complete"]) == (10, True)


async def test_levels_skip_chunks_without_reading_them(metrics, client, lines) -> None:
    await write(metrics, *lines)
    async with metrics.connection() as connection:
        await connection.execute("update log_chunks set max_level = 0 where attempt = 1")
        assert await texts(client, level="error") == ["ERROR:root:begin again"]


@pytest.mark.parametrize(
    "query", [{"level": "loud"}, {"search": "x" * 201}, {"since": "yesterday"}, {"before": -1}]
)
async def test_a_wrong_query_names_its_field(client, query) -> None:
    answer = await client.get("/logs", params={"job_id": JOB, **query})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == next(iter(query))
