"""What the gateway makes of the answers of other services' read ports."""

import asyncio
from typing import Any

import httpx
import pytest

from services.gateway.backends import Backends, PartRefused, PartUnavailable
from tests.handlers.gateway.model import Server, serving
from tests.handlers.gateway.story import Story


def backends(answer: httpx.Response) -> tuple[Backends, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer

    made = Backends({"cost": "http://cost"}, "a-read-token", httpx.MockTransport(respond))
    return made, seen


async def test_reads_carry_the_read_token() -> None:
    made, seen = backends(httpx.Response(200, json={"total": 1}))
    assert await made.get("cost", "/spend") == {"total": 1}
    assert seen[0].headers["authorization"] == "Bearer a-read-token"
    await made.close()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "it refuses the gateway's read token"),
        (421, "it does not know the address by which the gateway asks"),
        (500, "it answered 500"),
        (503, None),
    ],
)
async def test_a_part_that_refuses_the_gateway_itself_is_unavailable(
    status: int, why: str | None
) -> None:
    """Passed on, a 401 would send the user to look for a mistake in a correct token."""
    made, _ = backends(httpx.Response(status, json={"detail": "no"}))
    with pytest.raises(PartUnavailable) as one:
        await made.get("cost", "/spend")
    with pytest.raises(PartUnavailable) as many:
        await anext(made.lines("cost", "/chargeback", {}))
    assert (one.value.why, many.value.why) == (why, why)
    await made.close()


async def test_a_kept_connection_that_ends_when_it_is_used_again_is_no_outage() -> None:
    """A part closes a connection that was idle for some seconds; a request may be on its way."""
    num_connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_connections
        num_connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as standing:
        port = standing.sockets[0].getsockname()[1]
        made = Backends({"metrics": f"http://127.0.0.1:{port}"}, None)
        assert await made.get("metrics", "/system") == {}
        assert await made.get("metrics", "/system") == {}
        assert num_connections == 2
        await made.close()


async def test_why_a_part_cannot_answer_is_told_without_its_own_words(server: Server) -> None:
    at = "http://10.0.0.9:9000/bucket"
    answer = httpx.Response(503, json={"code": "store_unavailable", "detail": f"no route to {at}"})
    made, _ = backends(answer)

    async def forward(part: str, path: str, parameters: Any) -> Any:
        return await made.get("cost", path)

    story = Story()
    job = story.job("digits")
    await server.model.tell(*story.events)
    async with serving(server.model, forward=forward) as forwarding:
        told = await forwarding.client.get(f"/v1/jobs/{job.job_id}/series")
    assert told.status_code == 503
    assert told.json()["detail"] == (
        "the cost service cannot answer: older data is in the object store, which cannot be read "
        "now; everything else works"
    )
    await made.close()


@pytest.mark.parametrize(
    ("error", "retry_after", "why"),
    [
        (httpx.ReadTimeout("slow"), "15", "did not answer in time"),
        (httpx.ConnectError("refused"), "2", "cannot be reached"),
    ],
)
async def test_a_part_that_is_away_is_named_with_what_cannot_be_read(
    server: Server, error: httpx.TransportError, retry_after: str, why: str
) -> None:
    """And a program need not wait for a silent one again at once."""

    def fails(request: httpx.Request) -> httpx.Response:
        raise error

    made = Backends({"metrics": "http://metrics"}, None, httpx.MockTransport(fails))
    story = Story()
    job = story.job("digits")
    await server.model.tell(*story.events)
    async with serving(server.model, forward=made.get) as forwarding:
        told = await forwarding.client.get(f"/v1/jobs/{job.job_id}/series")
    assert (told.status_code, told.headers["retry-after"]) == (503, retry_after)
    assert told.json()["detail"] == (
        f"the metrics service {why}: samples, charts, pictures and lines of logs cannot be read "
        "now, and nothing of it is lost; everything else works"
    )
    await made.close()


async def test_a_refusal_of_the_request_is_passed_on() -> None:
    made, _ = backends(httpx.Response(404, json={"detail": "no price"}))
    with pytest.raises(PartRefused, match="no price"):
        await made.get("cost", "/estimate")
    await made.close()
