"""Bodies that are compressed, aborted or slow: one problem, one line in the log, no traceback."""

import asyncio
from urllib.parse import urlsplit

import pytest

from services.gateway.rest import gate
from tests.handlers.gateway.command_line import on_a_port
from tests.handlers.gateway.model import TOKEN, Server

HEADERS = f"Authorization: Bearer {TOKEN}\r\nContent-Length: 1000000\r\n"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/code", "/v1/parked/discard"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP", "identity, gzip"])
async def test_a_compressed_body_is_refused(quiet_server: Server, path: str, encoding: str) -> None:
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    answer = await quiet_server.client.post(path, content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "identity"
    assert answer.json()["errors"][0]["field"] == "Content-Encoding"


async def connect(
    environment: dict[str, str], path: str, content_type: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has sent the headers of a request and a part of its body."""
    host = urlsplit(environment["DRIVETRAIN_URL"]).netloc
    reader, writer = await asyncio.open_connection(*host.split(":"))
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{HEADERS}Content-Type: {content_type}"
    writer.write(f"{head}\r\n\r\n".encode() + b"x" * 70_000)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize(
    ("path", "content_type"), [("/v1/code", "application/gzip"), ("/v1/jobs", "application/json")]
)
async def test_an_aborted_body_is_one_line_in_the_log(
    server: Server,
    path: str,
    content_type: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = ""
    async with on_a_port(server) as environment:
        _, writer = await connect(environment, path, content_type)
        writer.close()
        async with asyncio.timeout(30):
            while "request aborted" not in text:
                await asyncio.sleep(0.01)
                captured = capfd.readouterr()
                text += captured.out + captured.err
    captured = capfd.readouterr()
    assert "Traceback" not in text + captured.out + captured.err + caplog.text


async def test_a_body_that_does_not_arrive_in_time_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.1)
    async with on_a_port(server) as environment:
        reader, writer = await connect(environment, "/v1/jobs", "application/json")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"request_timeout" in answer
