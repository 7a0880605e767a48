"""Requests a fork of a shim from the warm template: one line of JSON each way over a Unix socket.

There are three answers: started, refused (nothing runs), or unknown (the request was sent and not
answered: it may run).
"""

import asyncio
import contextlib
import json
import socket
from enum import StrEnum

ANSWER_SECONDS = 5.0


class Answer(StrEnum):
    STARTED = "started"
    REFUSED = "refused"
    UNKNOWN = "unknown"


async def ask(socket_path: str, directory: str) -> Answer:
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        # At once or never: asyncio would take a full queue for a connection that is made later.
        connection.connect(socket_path)
    except OSError:
        connection.close()
        return Answer.REFUSED
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(json.dumps({"directory": directory}).encode() + b"\n")
            await writer.drain()
            return _read(await reader.readline())
    except (OSError, TimeoutError):
        return Answer.UNKNOWN
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _read(line: bytes) -> Answer:
    try:
        answer = json.loads(line)
    except ValueError:
        return Answer.UNKNOWN
    if isinstance(answer, dict) and isinstance(answer.get("pid"), int):
        return Answer.STARTED
    return Answer.REFUSED if isinstance(answer, dict) and answer.get("error") else Answer.UNKNOWN
