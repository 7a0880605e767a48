"""The operations port: `/livez`, `/readyz` and `/metrics`.

Live: the loop runs and the consumers' polls return; nothing outside is checked. Ready: started, not
stopping, Postgres is writable, and every consumer has joined.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from services.runtime.http_limits import BoundedProtocol

EVERY_ADDRESS = "::"
# Of a machine that has no IPv6.
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
Check = Callable[[], Awaitable[str | None]]


class Server(uvicorn.Server):
    """uvicorn inside our own TaskGroup: signals are the service's, not the server's."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def main_loop(self) -> None:
        """Replaces uvicorn's, which wakes ten times a second to check whether it should stop."""
        while not self.should_exit:
            # 0: refresh the default headers of responses, including the date.
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._stopping.wait()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])


def server(app: ASGIApp, host: str, port: int) -> Server:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=BoundedProtocol,
        ws="none",
        timeout_graceful_shutdown=3,
        server_header=False,
    )
    return Server(config)


async def serve(running: Server, stopping: asyncio.Event) -> None:
    """Serve until `stopping`, then close the connections in order."""
    with contextlib.ExitStack() as opened:
        # Bound here, because uvicorn ends the process where it cannot bind.
        listening = _listening(running.config.host, running.config.port, opened)
        task = asyncio.create_task(running.serve(listening))
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            running.stop()
            await _ended(task)
        task.result()


def _listening(host: str, port: int, opened: contextlib.ExitStack) -> list[socket.socket]:
    """Bound to this address; `::` is every address of IPv6, where the machine has it, and of IPv4.

    A socket for each: one socket for both gives callers of IPv4 addresses of IPv6, which no list of
    trusted proxies names.
    """
    is_every = host == EVERY_ADDRESS
    sockets = [_bound("0.0.0.0" if is_every else host, port, opened)]
    if is_every:
        try:
            sockets.append(_bound(host, int(sockets[0].getsockname()[1]), opened))
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return sockets


def _bound(host: str, port: int, opened: contextlib.ExitStack) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = opened.enter_context(socket.create_server((host, port), family=family))
    # Inherited by its connections, for which asyncio does not set it: without it the body of an
    # answer waits 40 ms for the acknowledgement of the headers.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for the server's own end, even when cancelled: it takes `timeout_graceful_shutdown`."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def operations_app(live: Check, ready: Check) -> ASGIApp:
    """Each check returns None, or what is wrong."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path == "/metrics":
            await _respond(send, 200, generate_latest(), CONTENT_TYPE_LATEST)
        elif path in ("/livez", "/readyz"):
            problem = await (live if path == "/livez" else ready)()
            text = problem or "ok"
            await _respond(send, 503 if problem else 200, f"{text}\n".encode(), "text/plain")
        else:
            await _respond(send, 404, b"/livez, /readyz or /metrics\n", "text/plain")

    return app


async def _respond(send: Any, status: int, body: bytes, content_type: str) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
