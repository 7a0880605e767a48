"""Kafka and Postgres for a platform in pods: over verified TLS, with rights for each user.

Kafka has an authorizer and logs users in with SCRAM; Postgres has a role for each service. Topics
are not made here: that is a chart's part. All of it runs in an event loop of another thread, so
that synchronous tests can use it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drivetrain_schemas.access import ACCESS
from drivetrain_schemas.topics import SERVICES
from services.runtime.access.acls import wanted_acls
from services.runtime.access.kafka import apply_acls
from services.runtime.access.roles import create_roles
from services.standalone.embedded import running_postgres
from tests.secured_kafka import SecuredKafka, running_secured_kafka
from tests.secured_postgres import SecuredPostgres, new_database, secured_proxy

# The broker's superuser, who may create topics.
ADMINISTRATOR = "drivetrain"
PASSWORDS = {name: f"secret-of-role-{name}" for name in SERVICES}


@dataclass(frozen=True, slots=True)
class Infrastructure:
    kafka: SecuredKafka
    postgres: SecuredPostgres

    def dsn(self, service: str) -> str:
        """Of the service's role. How to connect is said elsewhere, as in the charts."""
        parts = urlsplit(self.postgres.dsn)
        netloc = f"{service}:{PASSWORDS[service]}@localhost:{parts.port}"
        return parts._replace(netloc=netloc).geturl()


@contextmanager
def running_infrastructure(directory: Path) -> Iterator[Infrastructure]:
    with _in_a_thread(_running(directory)) as running:
        yield running


@asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[Infrastructure]:
    users = [*ACCESS, ADMINISTRATOR]
    for name in ("kafka", "postgres", "proxy"):
        (directory / name).mkdir()
    async with (
        running_secured_kafka(directory / "kafka", users) as kafka,
        running_postgres(directory / "postgres") as server,
    ):
        await apply_acls(kafka.admin, wanted_acls("drivetrain."))
        owner = await new_database(server.dsn)
        await create_roles(owner, PASSWORDS)
        async with secured_proxy(directory / "proxy", owner) as postgres:
            yield Infrastructure(kafka, postgres)


@contextmanager
def _in_a_thread(manager: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
    entered: Future[Any] = Future()

    async def hold() -> None:
        left = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            async with manager as value:
                entered.set_result((value, lambda: loop.call_soon_threadsafe(left.set)))
                await left.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    with ThreadPoolExecutor(1) as thread:
        held = thread.submit(asyncio.run, hold())
        value, leave = entered.result()
        try:
            yield value
        finally:
            leave()
            held.result()
