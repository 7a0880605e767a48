"""The command line as a process, against the gateway on a real socket."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator

from services.runtime.operations import serve, server
from tests.handlers.gateway.model import TOKEN, Server


@contextlib.asynccontextmanager
async def on_a_port(standing: Server) -> AsyncIterator[dict[str, str]]:
    """The same application on a real socket; the environment of a command line for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stopping = asyncio.Event()
    running = server(standing.app, "127.0.0.1", port)
    task = asyncio.create_task(serve(running, stopping))
    while not running.started:
        await asyncio.sleep(0.01)
    try:
        yield {"DRIVETRAIN_URL": f"http://127.0.0.1:{port}", "DRIVETRAIN_TOKEN": TOKEN}
    finally:
        stopping.set()
        await task


async def drivetrain(environment: dict[str, str], *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "drivetrain.cli",
        *arguments,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
