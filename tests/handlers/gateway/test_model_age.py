"""The read model's age is shown wherever it is read: in answers, on pages, as gauges."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio
from prometheus_client import REGISTRY

from services.gateway.model_age import HEADER
from services.runtime.bus import OutRecord, Partition
from tests.fakes import InMemoryBus, InMemorySource, ManualClock
from tests.handlers.gateway.model import Model, Server, serving

TOPIC = "drivetrain.events.jobs"


@dataclass
class SlowConsumer:
    """Handles only what it is given; with `is_prompt`, right after it was asked where it is."""

    source: InMemorySource
    group: str = "drivetrain.gateway"
    handled_at: dict[Partition, float] = field(default_factory=dict)
    is_prompt: bool = False

    async def position(self, partition: Partition) -> int | None:
        position = await self.source.position(partition)
        if self.is_prompt:
            await self.source.poll(0)
        return position


@dataclass
class Behind:
    server: Server
    bus: InMemoryBus
    consumer: SlowConsumer
    clock: ManualClock

    async def happens(self, number: int) -> None:
        await self.bus.publish([OutRecord(TOPIC, b"job", b"{}", ())] * number)

    async def handles_all(self) -> None:
        await self.consumer.source.poll(0)

    async def passes(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1.0)


@pytest_asyncio.fixture(loop_scope="session")
async def behind(model: Model) -> AsyncIterator[Behind]:
    clock, bus = ManualClock(), InMemoryBus()
    source = bus.source("drivetrain.gateway", [TOPIC])
    await source.start()
    async with serving(model, clock=clock) as server:
        consumer: Any = SlowConsumer(source)
        server.platform.consumers.append(consumer)
        looking = asyncio.create_task(server.model_age.follow(server.platform))
        yield Behind(server, bus, consumer, clock)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_every_answer_says_how_old_the_model_is(behind: Behind) -> None:
    client = behind.server.client
    await behind.passes(2)
    assert (await client.get("/v1/jobs")).headers[HEADER] == "0"
    await behind.happens(12)
    await behind.passes(69)
    for path in ("/v1/jobs", "/v1/nodes", "/", "/v1/jobs/job_unknown"):
        assert 68 <= int((await client.get(path)).headers[HEADER]) <= 70, path
    assert REGISTRY.get_sample_value("drivetrain_gateway_model_lag_records") == 12
    assert (REGISTRY.get_sample_value("drivetrain_gateway_model_age_seconds") or 0) >= 60
    await behind.handles_all()
    await behind.passes(6)
    assert (await client.get("/v1/jobs")).headers[HEADER] == "0"
    assert REGISTRY.get_sample_value("drivetrain_gateway_model_lag_records") == 0


async def test_a_record_that_comes_while_the_ends_are_asked_for_makes_no_age(
    behind: Behind,
) -> None:
    behind.consumer.is_prompt = True
    ages = []
    for _ in range(6):
        await behind.happens(1)
        await behind.passes(3)
        ages.append((await behind.server.client.get("/v1/jobs")).headers[HEADER])
    assert ages == ["0"] * 6


async def test_pages_say_that_they_are_old(behind: Behind) -> None:
    client = behind.server.client
    await behind.passes(2)
    assert "as it was" not in (await client.get("/")).text
    await behind.happens(12)
    await behind.passes(69)
    for path in ("/", "/studies", "/nodes", "/parked"):
        page = (await client.get(path)).text
        assert 'as it was <time datetime="2026-01-01T00:00:0' in page, path
        assert "12 records not read yet" in page, path


async def test_an_open_page_is_sent_a_hint_when_it_becomes_old_and_when_it_is_current(
    behind: Behind,
) -> None:
    await behind.passes(2)
    with behind.server.model.live.listening("default", None) as listener:
        await behind.happens(1)
        await behind.passes(4)
        assert listener.queue.empty()
        await behind.passes(6)
        hint = listener.queue.get_nowait()
        assert hint is not None
        assert (hint.type, hint.cursor) == ("stale", None)
        await behind.handles_all()
        await behind.passes(6)
        assert listener.queue.qsize() == 1


async def test_the_document_names_the_header(behind: Behind) -> None:
    document = (await behind.server.client.get("/openapi.json")).json()
    for path in ("/v1/jobs", "/v1/jobs/{job_id}", "/v1/studies", "/v1/nodes", "/v1/cost"):
        answer = document["paths"][path]["get"]["responses"]["200"]
        assert HEADER in answer["headers"], path
