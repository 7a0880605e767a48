"""The live stream: everything once and in order, over reconnections, rebuilds and slow clients."""

import asyncio
import json

import pytest

from services.gateway import live as live_module
from services.gateway.rest import stream as stream_module
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.story import Story, recovery
from tests.handlers.gateway.streams import SECONDS, reading


async def test_events_come_in_order_as_sentences(model: Model, server: Server) -> None:
    story = Story()
    job = story.job("live")
    job.starts()
    async with reading(server) as reader:
        await model.tell(*story.events)
        frames = [await reader.frame() for _ in story.events]
    assert [frame["event"] for frame in frames] == [event.type for event in story.events]
    ids = [frame["id"].rpartition(".") for frame in frames]
    assert [int(cursor) for _, _, cursor in ids] == list(range(1, len(frames) + 1))
    assert len({generation for generation, _, _ in ids}) == 1
    told = json.loads(frames[0]["data"])
    assert (told["job_id"], told["text"][:8], told["tone"]) == (job.job_id, "Accepted", "plain")


async def test_a_reader_that_reconnects_misses_nothing_and_receives_nothing_twice(
    model: Model, server: Server
) -> None:
    story = Story()
    recovery(story)
    events = [event for event in story.events if event.seq is not None]
    async with reading(server) as reader:
        await model.tell(*story.events[:6])
        heard = await reader.types(3)
        position = reader.last_id
    await model.tell(*story.events[6:])
    async with reading(server, **{"last-event-id": position}) as reader:
        heard += await reader.types(len(events) - 3)
    assert heard == [event.type for event in events]


async def test_a_page_continues_from_where_it_was_rendered(model: Model, server: Server) -> None:
    story = Story()
    story.nodes("node-1", "node-2", "node-3")
    await model.tell(story.events[0])
    page = (await server.client.get("/nodes")).text
    position = page.partition('data-position="')[2].partition('"')[0]
    await model.tell(*story.events[1:])
    async with reading(server, f"last_event_id={position}") as reader:
        first = json.loads((await reader.frame())["data"])
    assert first["node_id"] == "node-2"


async def test_one_job_can_be_followed(model: Model, server: Server) -> None:
    story = Story()
    other, wanted = story.job("other"), story.job("wanted")
    other.starts()
    wanted.starts()
    async with reading(server, f"job_id={wanted.job_id}") as reader:
        await model.tell(*story.events)
        frames = [json.loads((await reader.frame())["data"]) for _ in range(4)]
    assert {frame["job_id"] for frame in frames} == {wanted.job_id}


async def test_a_rebuild_is_a_reset(model: Model, server: Server) -> None:
    story = Story()
    story.nodes("node-1", "node-2")
    async with reading(server) as reader:
        await model.tell(story.events[0])
        old = (await reader.frame())["id"]
        async with model.database.connection() as connection:
            await connection.execute("update stream set generation = 'fresh', last_cursor = 0")
            await connection.execute("truncate timeline, inbox")
        frame = await reader.frame()
        assert (frame["event"], frame["id"]) == ("reset", "fresh.0")
        await model.tell(story.events[1])
        frame = await reader.frame()
        assert (frame["event"], frame["id"]) == ("node.registered", "fresh.1")
    async with reading(server, **{"last-event-id": old}) as reader:
        assert (await reader.frame())["event"] == "reset"
        assert reader.last_id == "fresh.1"


async def test_progress_comes_without_an_id(model: Model, server: Server) -> None:
    story = Story()
    job = story.job("moving")
    job.starts()
    await model.tell(*story.events)
    async with reading(server) as reader:
        await model.tell(*(story.tell(job.beat(step)) for step in (10, 30)))
        frame = await reader.frame()
        while frame["event"] != "progress" or json.loads(frame["data"])["step"] != 30:
            frame = await reader.frame()
    assert frame["event"] == "progress"
    assert "id" not in frame
    assert json.loads(frame["data"])["max_steps"] == 400


async def test_a_slow_reader_is_dropped_and_the_others_continue(
    model: Model, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    story.nodes(*(f"node-{number}" for number in range(8)))
    with model.live.listening("default", None) as slow:
        slow.queue = asyncio.Queue(3)
        async with reading(server) as reader:
            await model.tell(*story.events)
            assert len(await reader.types(8)) == 8
        assert slow.is_dropped
        heard = live_module.messages(model.live, server.platform, slow, None)
        names = [message.data["node_id"] async for message in heard]
    # It reconnects with the last id it has seen, and then receives what it misses now.
    assert names == ["node-0", "node-1"]


async def test_a_quiet_stream_shows_that_it_lives(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "HEARTBEAT_SECONDS", 0.01)
    async with reading(server) as reader:
        chunk = await asyncio.wait_for(reader.chunks.get(), SECONDS)
    assert chunk.startswith(b":")


async def test_streams_are_bounded_and_end_with_the_service(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MAX_LISTENERS", 1)
    async with serving(model) as server, reading(server) as reader:
        refused = await server.client.get("/v1/stream")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        server.platform.stopping.set()
        await asyncio.wait_for(reader.ended.wait(), SECONDS)
