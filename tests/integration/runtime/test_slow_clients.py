"""Clients that send their request a byte at a time, or take no answer, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from services.runtime import http_limits
from services.runtime.operations import serve, server
from services.standalone.ports import free_port

NUM_PIECES, PIECE_BYTES = 40, 1024 * 1024
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def _echo_size(scope: Any, receive: Any, send: Any) -> None:
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    body = str(size).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _LongAnswer:
    """An answer of many pieces; `end` tells how it came to its end."""

    def __init__(self) -> None:
        self.end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            is_whole = False
            try:
                for _ in range(NUM_PIECES):
                    await asyncio.sleep(0)  # as one that reads them from a store
                    yield bytes(PIECE_BYTES)
                is_whole = True
            finally:
                self.end.set_result(is_whole)

        await StreamingResponse(pieces())(scope, receive, send)


@asynccontextmanager
async def connected(
    answer: Any = _echo_size,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port, stopping = free_port(), asyncio.Event()
    running = server(answer, "127.0.0.1", port)
    serving = asyncio.create_task(serve(running, stopping))
    while not running.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        stopping.set()
        await serving


async def _is_closed_while_dripping(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    """Send a byte again and again until the server closes. Returns what it answered."""
    answered = asyncio.create_task(reader.read())
    while not answered.done():
        try:
            writer.write(b"x")
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.sleep(0.01)
    try:
        return await answered
    except ConnectionError:
        return b""


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(http_limits, "BODY_SECONDS", 0.2)


@pytest.mark.parametrize("first", [b"", REQUEST + b"X-Long: "])
async def test_headers_that_never_end_end_the_connection(first: bytes) -> None:
    async with connected() as (reader, writer):
        writer.write(first)
        assert await _is_closed_while_dripping(reader, writer) == b""


async def test_a_silent_connection_is_closed() -> None:
    async with connected() as (reader, _):
        assert await reader.read() == b""


async def test_headers_of_a_second_request_have_the_same_limit() -> None:
    async with connected() as (reader, writer):
        writer.write(REQUEST + b"\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(1)
        assert await _is_closed_while_dripping(reader, writer) == b""


async def test_a_body_that_never_ends_ends_the_connection() -> None:
    async with connected() as (reader, writer):
        writer.write(REQUEST.replace(b"GET", b"POST") + b"Content-Length: 100000\r\n\r\n")
        assert await _is_closed_while_dripping(reader, writer) == b""


async def test_a_whole_request_in_small_parts_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEADER_SECONDS", 30.0)
    monkeypatch.setattr(http_limits, "BODY_SECONDS", 30.0)
    async with connected() as (reader, writer):
        for _ in range(2):
            for byte in REQUEST.replace(b"GET", b"POST") + b"Content-Length: 3\r\n\r\nabc":
                writer.write(bytes([byte]))
                await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"3")


async def test_an_answer_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "ANSWER_SECONDS", 0.2)
    app = _LongAnswer()
    async with connected(app) as (_, writer):
        writer.write(REQUEST + b"\r\n")
        async with asyncio.timeout(30):
            assert await app.end is False


async def test_an_answer_that_is_taken_slowly_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "ANSWER_SECONDS", 3.0)
    app = _LongAnswer()
    async with connected(app) as (reader, writer):
        writer.write(REQUEST + b"Connection: close\r\n\r\n")
        taken = 0
        while piece := await reader.read(PIECE_BYTES):
            taken += len(piece)
            await asyncio.sleep(0.02)
        assert taken > NUM_PIECES * PIECE_BYTES
        assert await app.end is True
