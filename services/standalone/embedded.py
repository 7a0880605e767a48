"""Kafka and Postgres for use as a library: each a supervised process inside a `with` block.

Used by tests (one of each per session) and by any program that needs the real parts without the
platform. Each chooses free ports, starts again after a `kill -9`, and is stopped at the end.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

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
    directory: Path, password: str | None = None
) -> AsyncIterator[RunningPostgres]:
    """A real server in this directory; reuse of a directory needs its original password."""
    server = postgres.Server(directory, free_port(), password or secrets.token_urlsafe(24))
    async with supervised(postgres.spec(server, directory / "log")) as child:
        yield RunningPostgres(server.dsn, child)


@asynccontextmanager
async def supervised(spec: ChildSpec) -> AsyncIterator[Child]:
    """One child on its own, ready when the block is entered."""
    child = Child(spec)
    supervision = asyncio.create_task(child.supervise())
    readiness = asyncio.create_task(child.wait_ready())
    try:
        await asyncio.wait({supervision, readiness}, return_when=asyncio.FIRST_COMPLETED)
        if not readiness.done():
            await supervision
        yield child
    finally:
        readiness.cancel()
        await child.stop()
        await asyncio.gather(supervision, readiness, return_exceptions=True)
