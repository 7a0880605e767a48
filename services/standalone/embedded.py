"""Kafka and Postgres for use as a library: each a supervised process inside a `with` block.

Used by tests (one of each per session) and by any program that needs the real parts without the
platform. Each chooses free ports, starts again after a `kill -9`, and is stopped at the end.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.standalone import jars, kafka, postgres
from services.standalone.child import Child, ChildSpec
from services.standalone.ports import free_port


@dataclass(frozen=True, slots=True)
class RunningKafka:
    bootstrap_servers: str
    username: str
    password: str
    child: Child
    """For tests of faults: `child.kill()`, `child.pid`, `await child.wait_ready()`."""


@dataclass(frozen=True, slots=True)
class RunningPostgres:
    dsn: str
    child: Child


@asynccontextmanager
async def running_kafka(
    directory: Path,
    password: str | None = None,
    cache: Path | None = None,
    users: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningKafka]:
    """A real broker in this directory; the same directory and password give access to the old data.

    `users`: names and passwords beside the administrator's; access lists give them rights.
    """
    broker = kafka.Broker(
        directory,
        free_port(),
        free_port(),
        "drivetrain",
        password or secrets.token_urlsafe(24),
        users or {},
    )
    locked = jars.locked_jars("kafka")
    paths = await asyncio.to_thread(jars.fetch_jars, locked, cache or jars.default_cache())
    async with supervised(kafka.spec(broker, paths, directory / "log")) as child:
        yield RunningKafka(
            broker.connection.bootstrap_servers, broker.username, broker.password, child
        )


@asynccontextmanager
async def running_postgres(
    directory: Path, password: str | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[RunningPostgres]:
    """A real server on loopback in this directory, whose reuse needs its original password.

    `settings`: of the server, beside the platform's own.
    """
    secret = password or secrets.token_urlsafe(24)
    server = postgres.Server(directory, free_port(), secret, is_on_loopback=True)
    async with supervised(postgres.spec(server, directory / "log", settings or {})) as child:
        yield RunningPostgres(server.dsn, child)


@asynccontextmanager
async def supervised(spec: ChildSpec) -> AsyncIterator[Child]:
    """One child on its own, ready when the block is entered."""
    async with all_supervised([spec]) as (child,):
        yield child


@asynccontextmanager
async def all_supervised(specs: Sequence[ChildSpec]) -> AsyncIterator[tuple[Child, ...]]:
    """Children that start together, all ready when the block is entered."""
    children = tuple(Child(spec) for spec in specs)
    supervisions = [asyncio.create_task(child.supervise()) for child in children]
    readiness: asyncio.Future[Any] = asyncio.gather(*(child.wait_ready() for child in children))
    try:
        await asyncio.wait({*supervisions, readiness}, return_when=asyncio.FIRST_COMPLETED)
        if not readiness.done():
            ended = next(task for task in supervisions if task.done())
            await ended
        yield children
    finally:
        readiness.cancel()
        await asyncio.gather(*(child.stop() for child in children))
        await asyncio.gather(*supervisions, readiness, return_exceptions=True)
