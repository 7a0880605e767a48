"""Time limits for what a client sends: the headers of a request, and its body.

uvicorn bounds only the pause between two requests. Without these limits a client that sends one
byte a minute holds a connection and its file descriptor indefinitely.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.runtime import logs
from services.runtime.instruments import HTTP_REFUSED

log = logs.get()

HEADER_SECONDS = 10.0
# An upload of 64 MiB at 2 Mbit/s; routes with smaller bodies set a shorter limit.
BODY_SECONDS = 300.0


class BoundedProtocol(H11Protocol):
    """Closes a connection whose request is not complete in time."""

    _limit: asyncio.TimerHandle | None = None
    _awaited: str = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_limit("headers", HEADER_SECONDS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_limit()
        super().connection_lost(exc)

    def _follow(self) -> None:
        """Choose the limit for the state of the connection."""
        state = self.conn.their_state
        if self.transport.is_closing():
            self._clear_limit()
        elif state is h11.SEND_BODY:
            self._set_limit("body", BODY_SECONDS)
        elif state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._set_limit("headers", HEADER_SECONDS)
        else:  # complete, or idle under uvicorn's own limit
            self._clear_limit()

    def _set_limit(self, awaited: str, seconds: float) -> None:
        if self._awaited != awaited:
            self._clear_limit()
            self._awaited = awaited
            self._limit = self.loop.call_later(seconds, self._close)

    def _clear_limit(self) -> None:
        self._awaited = ""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _close(self) -> None:
        log.warning("connection closed: the client was too slow", awaited=self._awaited)
        HTTP_REFUSED.labels(f"slow_{self._awaited}").inc()
        self.transport.close()
