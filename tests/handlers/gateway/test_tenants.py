"""No byte of a tenant is shown to another one: by no route, no page and no stream."""

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from drivetrain_schemas.annotations import JobAnnotated
from services.gateway import commands
from tests.handlers.gateway.model import TENANT_HEADER, Model, Server, serving
from tests.handlers.gateway.planting import Planted, backend, plant
from tests.handlers.gateway.story import Story
from tests.handlers.gateway.streams import Reader, reading
from tests.handlers.gateway.walking import Answer, walk

# What needs no tenant, or answers with numbers only.
SAY_NOTHING = {
    "/favicon.ico",
    "/login",
    "/sign-in",
    "/v1/jobs/{job_id}/cost",
    "/v1/jobs/{job_id}/times",
    "/v1/studies/{study_id}/insight",
    "/v1/studies/{study_id}/trials/{number}/should-stop",
}


async def plant_both(server: Server, planted: list[Planted]) -> None:
    """Two tenants on two nodes, into a list that others read meanwhile."""
    story = Story()
    story.nodes("node-1", "node-2", slots=4)
    await server.model.tell(*story.events)
    planted.append(await plant(server, "default", "okapi", "node-1"))
    planted.append(await plant(server, "zebra-lab", "zebra", "node-2"))


def seen(answers: list[Answer], other: Planted) -> list[tuple[str, str]]:
    """What answers hold of the other tenant, beyond what the request itself named."""
    return [
        (answer.url, text)
        for answer in answers
        for text in other.ids
        if text in answer.text.replace(answer.url.partition("?")[0], "") and text not in answer.url
    ]


async def test_no_route_shows_a_tenant_to_another(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    asked: list[str] = []
    both: list[Planted] = []
    async with serving(model, forward=backend(both, asked)) as server:
        await plant_both(server, both)
        for own, other in (both, both[::-1]):
            answers = await walk(server, own.tenant_id, own.known)
            shown = {answer.route for answer in answers if seen([answer], own)}
            shown |= {answer.route for answer in answers if own.word in answer.text}
            assert {answer.route for answer in answers} - shown <= SAY_NOTHING
            assert seen(answers, other) == []
            answers = await walk(server, own.tenant_id, other.known)
            assert seen(answers, other) == []
            # Other services are asked about the tenant's own only.
            assert len(asked) > 20
            assert [one for one in asked if not own.is_asked_about(one)] == []
            assert [one for one in asked if other.is_asked_about(one)] == []
            asked.clear()


async def test_the_stream_sends_a_tenant_its_own_events_and_the_nodes(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    both: list[Planted] = []
    tenants = ("default", "zebra-lab")
    async with serving(model) as server, AsyncExitStack() as stack:
        readers = []
        for tenant_id in tenants:
            headers = {TENANT_HEADER: tenant_id}
            readers.append(await stack.enter_async_context(reading(server, **headers)))
        await plant_both(server, both)
        await check_streams(model, readers, both)
        # And from the table, to a client that comes back.
        generation = readers[0].last_id.rpartition(".")[0]
        for one, other in (both, both[::-1]):
            headers = {TENANT_HEADER: one.tenant_id, "last-event-id": f"{generation}.0"}
            async with reading(server, **headers) as reader:
                text = await heard(reader, one.tenant_id)
            assert one.job_ids[0] in text
            assert "node.registered" in text
            assert not [id for id in other.ids if id in text]


async def check_streams(model: Model, readers: list[Reader], both: list[Planted]) -> None:
    """Each tenant's progress came, so one look at the progress of all was sent; then its end."""
    before = [await heard(reader, "progress") for reader in readers]
    for one in both:
        story = Story(tenant_id=one.tenant_id)
        story.tell(JobAnnotated(job_id=one.job_ids[0], note="", project=f"end-of-{one.tenant_id}"))
        story.events[0] = replace(story.events[0], event_id=f"end-of-{one.tenant_id}", seq=999)
        await model.tell(*story.events)
    for reader, text, (own, other) in zip(readers, before, (both, both[::-1]), strict=True):
        text += await heard(reader, own.tenant_id)
        assert own.job_ids[0] in text
        assert "node.registered" in text
        assert not [id for id in other.ids if id in text]


async def heard(reader: Reader, what: str) -> str:
    """All that came until this kind of event, or the end of this tenant's."""
    text = ""
    while True:
        frame = await reader.frame()
        text += f"{frame}\n"
        if frame["event"] == what or f"end-of-{what}" in frame["data"]:
            return text
