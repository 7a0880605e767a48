"""An open stream of the gateway, read as a browser reads it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.handlers.gateway.model import TOKEN, Server

SECONDS = 10.0


@dataclass(slots=True)
class Reader:
    """An open stream: what came over it, event by event."""

    chunks: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    text: str = ""
    last_id: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def frame(self) -> dict[str, str]:
        """The next event, as a browser would dispatch it; comments and bare ids are passed over."""
        while True:
            while "\n\n" not in self.text:
                self.text += (await asyncio.wait_for(self.chunks.get(), SECONDS)).decode()
            raw, _, self.text = self.text.partition("\n\n")
            lines = (line.partition(": ") for line in raw.split("\n") if not line.startswith(":"))
            fields = {name: value for name, _, value in lines}
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return fields

    async def types(self, number: int) -> list[str]:
        return [(await self.frame())["event"] for _ in range(number)]


@asynccontextmanager
async def reading(server: Server, query: str = "", **headers: str) -> AsyncIterator[Reader]:
    reader = Reader()
    leave = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        elif message["type"] == "http.response.body":
            await reader.chunks.put(message["body"])
            if not message.get("more_body"):
                reader.ended.set()

    sent = {"host": "localhost:8480", "authorization": f"Bearer {TOKEN}", **headers}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/v1/stream", "raw_path": b"/v1/stream", "root_path": "",
        "query_string": query.encode(), "server": ("localhost", 8480), "client": ("test", 1),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }  # fmt: skip
    task = asyncio.create_task(server.app(scope, receive, send))
    try:
        first = await asyncio.wait_for(reader.chunks.get(), SECONDS)
        reader.text += first.decode()
        yield reader
    finally:
        leave.set()
        await asyncio.wait_for(task, SECONDS)
