"""Time limits for what a client sends and takes: a request's headers, its body, and the answer.

uvicorn bounds only the pause between two requests. Without these limits a client that sends or
takes one byte a minute holds a connection, its file descriptor and an answer indefinitely.
"""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

import h11
from h11._connection import DEFAULT_MAX_INCOMPLETE_EVENT_SIZE
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.runtime import logs
from services.runtime.instruments import HTTP_REFUSED

log = logs.get()

HEADER_SECONDS = 10.0
# An upload of 64 MiB at 2 Mbit/s; routes with smaller bodies set a shorter limit.
BODY_SECONDS = 300.0
# In this time a client takes at least so many bytes of an answer that waits for it.
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 64 * 1024


LOG_SECONDS = 60.0


class Closed:
    """Says of what it waited for that a connection was closed: at once of the first one, then in
    one line per minute of how many there were. Thousands may be closed in a second.
    """

    def __init__(self) -> None:
        # Of each event loop: how many were closed since the last line.
        self._since: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, int]] = (
            WeakKeyDictionary()
        )

    def add(self, loop: asyncio.AbstractEventLoop, awaited: str) -> None:
        HTTP_REFUSED.labels(f"slow_{awaited}").inc()
        since = self._since.setdefault(loop, {})
        if awaited in since:
            since[awaited] += 1
        else:
            self._tell(loop, awaited, 1)

    def _tell(self, loop: asyncio.AbstractEventLoop, awaited: str, num_connections: int) -> None:
        log.warning(
            "connections closed: the clients were too slow",
            awaited=awaited,
            num_connections=num_connections,
        )
        self._since[loop][awaited] = 0
        loop.call_later(LOG_SECONDS, self._look, loop, awaited)

    def _look(self, loop: asyncio.AbstractEventLoop, awaited: str) -> None:
        if num_connections := self._since[loop].pop(awaited):
            self._tell(loop, awaited, num_connections)


_closed = Closed()


class _OneLength(h11.Connection):
    """Refuses a request that gives the length of its body in two ways (RFC 9112, 6.1).

    A proxy that believes the other one would take the rest of the body for another request.
    """

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


class BoundedProtocol(H11Protocol):
    """Closes a connection whose request is not complete in time, or whose answer is not taken."""

    def __init__(self, config: Config, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        limit = config.h11_max_incomplete_event_size
        self.conn = _OneLength(h11.SERVER, limit or DEFAULT_MAX_INCOMPLETE_EVENT_SIZE)

    _limit: asyncio.TimerHandle | None = None
    _awaited: str = ""
    _taking: asyncio.TimerHandle | None = None

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
        self._stop_looking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        self._stop_looking()
        super().resume_writing()

    def _look_again(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(ANSWER_SECONDS, self._look, size)

    def _look(self, size_before: int) -> None:
        if size_before - self.transport.get_write_buffer_size() >= ANSWER_BYTES:
            self._look_again()
            return
        _closed.add(self.loop, "answer")
        self.transport.abort()  # to close it would wait for the client

    def _stop_looking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

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
        _closed.add(self.loop, self._awaited)
        self.transport.close()
