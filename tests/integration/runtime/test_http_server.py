"""The server of every HTTP port sends what it has at once."""

import asyncio
import socket
from typing import Any

import pytest

from services.runtime.operations import serve, server


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_the_body_of_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    """Nagle's algorithm holds back what follows a small segment until that is acknowledged."""
    running, stopping = server(_nothing, "127.0.0.1", 0), asyncio.Event()
    serving = asyncio.create_task(serve(running, stopping))
    while not running.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"204"

    (connection,) = running.server_state.connections
    accepted = connection.transport.get_extra_info("socket")
    sends_at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    writer.close()
    stopping.set()
    await serving
    assert sends_at_once


@pytest.mark.parametrize("is_ambiguous", [False, True])
async def test_a_body_with_two_lengths_is_refused_and_the_connection_closed(
    is_ambiguous: bool,
) -> None:
    """A proxy that believes the other length would hand on the rest as somebody's request."""
    running, stopping = server(_nothing, "127.0.0.1", 0), asyncio.Event()
    serving = asyncio.create_task(serve(running, stopping))
    while not running.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    length = b"Content-Length: 5\r\n" if is_ambiguous else b""
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\n" + length
    writer.write(request + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    if not is_ambiguous:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answers = await reader.read()
    writer.close()
    stopping.set()
    await serving
    statuses = [int(line.split()[1]) for line in answers.split(b"\r\n") if b"HTTP/1.1 " in line]
    assert statuses == ([400] if is_ambiguous else [204, 204])
