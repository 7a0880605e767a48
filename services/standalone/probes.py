"""Readiness probes: an HTTP request, or a connection to a Unix socket, each bounded in time.

Written on plain sockets, because a probe runs many times while the machine is busy starting.
"""

import asyncio
from pathlib import Path

TIMEOUT_S = 3.0


async def answers_http(port: int, path: str) -> bool:
    """Whether a GET on loopback is answered with 200."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                request = (
                    f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
                )
                writer.write(request.encode())
                status_line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return False
    return status_line.split(b" ")[1:2] == [b"200"]


async def accepts_connections(socket: Path) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_unix_connection(socket)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
