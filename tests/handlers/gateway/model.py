"""The gateway over a real Postgres, with events passed in directly instead of Kafka, and its HTTP
side.

`Model` applies records through the runtime's own processors, inbox included. `Server` is the whole
application behind its gate, with a bus in memory and, where a test wants one, somebody who answers
commands with events.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import Request
from pydantic import SecretStr
from starlette.routing import BaseRoute

from drivetrain_schemas.envelope import Event, InvalidEvent, parse
from drivetrain_schemas.ids import DEFAULT_TENANT
from services.gateway.app import build_app, gated
from services.gateway.backends import Backends, PartUnavailable
from services.gateway.context import Caller, Gateway, caller_of
from services.gateway.handlers import event_handlers, events_handler, stream_handlers
from services.gateway.live import Live
from services.gateway.model_age import ModelAge
from services.gateway.settings import GatewaySettings
from services.runtime.bus import OnSettled, OutRecord, Record
from services.runtime.clock import Clock, SystemClock
from services.runtime.database import Database
from services.runtime.parking import InvalidRecord, parked_headers
from services.runtime.processing import BatchProcessor, EventProcessor
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Platform
from tests.events import make_record
from tests.fakes import InMemoryBus, InMemoryObjectStore

TOKEN = "a-token-for-the-tests"
COOKIE_SECRET = "a-cookie-secret-for-the-tests"
TENANT_HEADER = "x-tenant-of-a-test"
BASE_URL = "http://localhost:8480"
PREFIX = "drivetrain."

# What a rebuild cannot give back, or gives back in another order.
NOT_COMPARED = {"stream", "login_codes", "migrations", "inbox", "outbox"}
NOT_COMPARED |= {"outbox_counter", "crash_watch", "rewound"}


class Model:
    """The read model of one schema."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.live = Live()
        self._offset = 0
        handle_batch = events_handler(self.live.wake)
        streams = stream_handlers(self.live.announce, self.live.wake, RunTokens(None))
        self._events = EventProcessor(
            "gateway", PREFIX, event_handlers(handle_batch), {}, handle_batch=handle_batch
        )
        self._batches = BatchProcessor("gateway", PREFIX, streams)

    async def tell(self, *events: Event[Any]) -> None:
        for event in events:
            await self.put(make_record(event))

    async def put(self, record: Record) -> None:
        """One record in a transaction of its own."""
        is_event = record.topic.startswith(f"{PREFIX}events.")
        work = (self._events if is_event else self._batches).plan([record])
        if work is not None:
            async with self.database.transaction() as tx:
                await work(tx)

    async def park(
        self,
        value: bytes | None,
        reason: str = "not_json",
        topic: str = "commands.jobs",
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> str:
        """A record parked by the scheduler, as the runtime writes it. Returns its id."""
        self._offset += 1
        headers = (("content-type", b"application/json"), ("ce_id", b"original"), *headers)
        original = Record(PREFIX + topic, 1, self._offset, 0, b"key", value, headers)
        extra = parked_headers("scheduler", InvalidRecord(original, reason, f"{reason}: by a test"))
        parked = Record(
            f"{PREFIX}parked.scheduler", 0, self._offset, 0, b"key", value, (*headers, *extra)
        )
        await self.put(parked)
        return dict(extra)["x-parked-id"].decode()

    async def park_raw(self, headers: Sequence[tuple[str, bytes]]) -> None:
        """A record on a parked topic with these headers and no others."""
        self._offset += 1
        topic = f"{PREFIX}parked.scheduler"
        await self.put(Record(topic, 0, self._offset, 0, b"key", b"value", tuple(headers)))

    async def rows(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.database.connection() as connection:
            return [dict(row) for row in await connection.fetch(statement, *arguments)]

    async def tables(self) -> dict[str, list[str]]:
        """Every projected table as sorted text, without cursors."""
        names = await self.rows(
            "select table_name as name from information_schema.tables "
            "where table_schema = $1 and table_type = 'BASE TABLE'",
            self.database.schema,
        )
        tables = {}
        for name in sorted({row["name"] for row in names} - NOT_COMPARED):
            rows = await self.rows(f"select to_jsonb(t) - 'cursor' as row from \"{name}\" as t")
            tables[name] = sorted(str(sorted(row["row"].items())) for row in rows)
        return tables


Answer = Callable[[Event[Any]], Sequence[Event[Any]]]


class AnsweringBus(InMemoryBus):
    """Feeds the model with the gateway's own events, and with the answer to each command."""

    def __init__(self, model: Model, answer: Answer | None) -> None:
        super().__init__()
        self._model = model
        self._answer = answer

    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        await super().publish(records, on_settled)
        for record in records:
            if record.topic.startswith(f"{PREFIX}events."):
                await self._model.tell(parse(record.headers, record.value))
            if self._answer is not None and record.topic.startswith(f"{PREFIX}commands."):
                with contextlib.suppress(InvalidEvent):  # a replayed record that nobody can read
                    await self._model.tell(*self._answer(parse(record.headers, record.value)))

    def commands(self, topic: str = "commands.jobs") -> list[Event[Any]]:
        return [parse(record.headers, record.value) for record in self.records(PREFIX + topic)]


def _caller_named(request: Request) -> Caller:
    """The caller of a test may be of any tenant."""
    return Caller(request.headers.get(TENANT_HEADER, DEFAULT_TENANT))


Forward = Callable[[str, str, Any], Awaitable[Any]]


class StubBackends(Backends):
    """Answers from a function in the place of the metrics and cost services."""

    def __init__(self, forward: Forward | None) -> None:
        super().__init__({"metrics": None, "cost": None, "hpo": None, "scheduler": None}, None)
        self._forward = forward

    async def get(self, part: str, path: str, parameters: Any = None) -> Any:
        if self._forward is None:
            return await super().get(part, path, parameters)
        return await self._forward(part, path, parameters)

    async def lines(self, part: str, path: str, parameters: Any) -> Any:
        if self._forward is None:
            raise PartUnavailable(part)
        for line in await self._forward(part, path, parameters):
            yield line

    async def ask(self, part: str, path: str, question: Any) -> Any:
        if self._forward is None:
            return await super().ask(part, path, question)
        return await self._forward(part, path, question)


@dataclass(slots=True)
class Server:
    """The application, a client that shows the token, and one that shows nothing."""

    app: Any
    routes: Sequence[BaseRoute]
    model: Model
    bus: AnsweringBus
    objects: InMemoryObjectStore
    client: httpx.AsyncClient
    stranger: httpx.AsyncClient
    platform: Platform
    model_age: ModelAge
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


def make_settings(database: Database, **changes: Any) -> GatewaySettings:
    fields: dict[str, Any] = {
        "kafka_bootstrap_servers": "unused",
        "postgres_dsn": SecretStr("unused"),
        "api_token": TOKEN,
        "cookie_secret": COOKIE_SECRET,
        "object_store_url": "file:///objects",
    }
    return GatewaySettings.model_validate({**fields, **changes})


@asynccontextmanager
async def serving(
    model: Model,
    *,
    answer: Answer | None = None,
    forward: Forward | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Server]:
    """The whole HTTP side over this model, without a socket."""
    stopping = asyncio.Event()
    objects = InMemoryObjectStore()
    bus = AnsweringBus(model, answer)
    chosen = make_settings(model.database, **settings)
    platform = Platform(
        settings=chosen,
        database=model.database,
        publisher=bus,
        object_store=objects,
        clock=clock or SystemClock(),
        stopping=stopping,
    )
    age = ModelAge(lambda: model.live.announce("stale"))
    gateway = Gateway(chosen, platform, model.live, StubBackends(forward), age)
    built = build_app(gateway)
    built.dependency_overrides[caller_of] = _caller_named
    app = gated(built, gateway)
    follower = asyncio.create_task(model.live.follow(platform))
    transport = httpx.ASGITransport(app=app)
    known = {"Authorization": f"Bearer {TOKEN}"}
    try:
        async with (
            httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=known) as client,
            httpx.AsyncClient(transport=transport, base_url=BASE_URL) as stranger,
        ):
            yield Server(
                app, built.routes, model, bus, objects, client, stranger, platform, age, stopping
            )
    finally:
        stopping.set()
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        await gateway.backends.close()


async def sign_in(server: Server) -> dict[str, str]:
    """Follow a one-time link. Returns the cookie header of the new session."""
    link = (await server.client.post("/v1/login-links")).json()["url"]
    answer = await server.stranger.get(link)
    assert answer.status_code == 200, answer.text
    found = re.match(r"(drivetrain_session_[0-9a-f]+=[^;]+);", answer.headers["set-cookie"])
    assert found, answer.headers
    server.stranger.cookies.clear()
    return {"cookie": found.group(1)}
