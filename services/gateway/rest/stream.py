"""GET /v1/stream: what happens, as it happens, as server-sent events.

Each event's id is `<generation>.<cursor>`; a client that reconnects with the last one
(`Last-Event-ID`, or `last_event_id` where a page opens a new stream) misses nothing. A comment
every 15 seconds keeps the connection; a client that reads nothing for 20 seconds is disconnected.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from drivetrain_schemas.ids import JobId
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.live import Listener, Message, TooManyListeners, messages
from services.gateway.problem import Problem, invalid
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1", tags=["stream"])

HEARTBEAT_SECONDS = 15.0
SEND_SECONDS = 20.0
RETRY_MS = 1000
MEDIA_TYPE = "text/event-stream"


@router.get(
    "/stream",
    response_class=Response,
    responses={
        200: {
            "description": "Event types of the timeline, `progress`, and `reset` after a rebuild",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **answers(422, 429),
    },
)
async def stream(
    gateway: GatewayDep,
    caller: CallerDep,
    job_id: JobId | None = None,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    resume: Annotated[str | None, Query(alias="last_event_id", max_length=64)] = None,
) -> Response:
    """Follow one job, or everything of the caller's tenant, and the nodes."""
    return EventStream(gateway, caller, job_id, _position(last_event_id or resume))


class EventStream(Response):
    """A response that ends when the client disconnects, stops reading, or the process stops."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        gateway: Gateway,
        caller: Caller,
        job_id: str | None,
        resume: tuple[str, int] | None,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._gateway = gateway
        self._tenant_id = caller.tenant_id
        self._job_id = job_id
        self._resume = resume

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = self._gateway.live
        await live.began()
        try:
            listening = live.listening(self._tenant_id, self._job_id)
            listener = listening.__enter__()
        except TooManyListeners:
            raise Problem(
                429, "too_many_streams", "the server's limit of open streams is reached"
            ) from None
        try:
            await self._serve(listener, receive, send)
        finally:
            listening.__exit__(None, None, None)

    async def _serve(self, listener: Listener, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        sender = asyncio.create_task(self._send_all(listener, send))
        leaver = asyncio.create_task(_left(receive))
        stopper = asyncio.create_task(self._gateway.platform.stopping.wait())
        tasks = (sender, leaver, stopper)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, OSError):
                raise result
        with contextlib.suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, listener: Listener, send: Send) -> None:
        async for text in self._texts(listener):
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _texts(self, listener: Listener) -> AsyncIterator[str]:
        generation = listener.generation
        position = self._resume or (generation, listener.cursor)
        # An event without data is not dispatched, but the client keeps its id.
        yield f"retry: {RETRY_MS}\nid: {position[0]}.{position[1]}\n\n"
        source = messages(self._gateway.live, self._gateway.platform, listener, self._resume)
        waiting: asyncio.Task[Message] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(source))
                done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_SECONDS)
                if not done:
                    yield ": keep-alive\n\n"
                    continue
                try:
                    message = waiting.result()
                except StopAsyncIteration:
                    return
                waiting = None
                if message.type == "reset":
                    generation = message.data["generation"]
                yield _text(message, generation)
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await source.aclose()


def _text(message: Message, generation: str) -> str:
    id_line = "" if message.cursor is None else f"id: {generation}.{message.cursor}\n"
    data = json.dumps(message.data, separators=(",", ":"))
    return f"{id_line}event: {message.type}\ndata: {data}\n\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _position(text: str | None) -> tuple[str, int] | None:
    if not text:
        return None
    generation, _, cursor = text.rpartition(".")
    if not generation.isalnum() or not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 18:
        raise invalid("Last-Event-ID", "not an id of this stream", "leave it out")
    return generation, int(cursor)
