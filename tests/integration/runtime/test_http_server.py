"""The server of every HTTP port sends what it has at once."""

import asyncio
import socket
from typing import Any

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
