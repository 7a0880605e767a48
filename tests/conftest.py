"""Fixtures that start the real parts once per session: Postgres and Kafka on loopback.

Each test gets its own schema (`database`) or its own topic prefix (`kafka_prefix`), so tests share
the servers and nothing else.
"""

import gc
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from services.runtime.database import Database
from services.runtime.kafka_access import KafkaAccess
from services.standalone.embedded import running_kafka, running_postgres
from tests import s3_server
from tests.databases import PreparedSchemas
from tests.standalone_platform import StandalonePlatform

# The inner loop (`make unit`) tries fewer examples of each property.
settings.register_profile("quick", max_examples=8, deadline=None)
settings.register_profile("default", max_examples=50, deadline=None)

# A machine that loses power is no case of these tests; the suites of faults keep the defaults.
# Without autovacuum plans depend on what a test does, not on when.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
}

OpenDatabase = Callable[..., Awaitable[Database]]


def pytest_collection_finish() -> None:
    """Nine thousand tests stay until the end: the collector need not look at them again."""
    gc.freeze()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_dsn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A real Postgres for the whole session."""
    directory: Path = tmp_path_factory.mktemp("postgres")
    async with running_postgres(directory, settings=SETTINGS) as postgres:
        yield postgres.dsn


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kafka(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KafkaAccess]:
    """A real Kafka for the whole session; tests tell their topics apart by prefix."""
    directory: Path = tmp_path_factory.mktemp("kafka")
    async with running_kafka(directory) as broker:
        yield KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.RunningS3]:
    """A real S3 server with a bucket; skips where there is none and none can be built."""
    binary = s3_server.find_binary()
    if isinstance(binary, str):
        pytest.skip(binary)
    with s3_server.running_s3(binary, tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def topic_prefix() -> str:
    return f"t{secrets.token_hex(4)}."


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def schemas(postgres_dsn: str) -> AsyncIterator[PreparedSchemas]:
    administration = await asyncpg.connect(postgres_dsn)
    prepared = PreparedSchemas(postgres_dsn, administration)
    yield prepared
    await prepared.close()
    await administration.close()


@pytest_asyncio.fixture(loop_scope="session")
async def database(schemas: PreparedSchemas) -> AsyncIterator[OpenDatabase]:
    """`await database("cost")`: the schema of a service as its migrations left it."""
    async with taking(schemas) as take:
        yield take


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kept_database(schemas: PreparedSchemas) -> AsyncIterator[OpenDatabase]:
    """The same for all tests of a file: what they read is written once, and they change nothing."""
    async with taking(schemas) as take:
        yield take


@asynccontextmanager
async def taking(schemas: PreparedSchemas) -> AsyncIterator[OpenDatabase]:
    taken: list[Database] = []

    async def take(service: str, **options: bool) -> Database:
        taken.append(await schemas.take(service, **options))
        return taken[-1]

    yield take
    for opened in reversed(taken):
        await schemas.give_back(opened)


@pytest_asyncio.fixture(loop_scope="session")
async def own_database(postgres_dsn: str) -> AsyncIterator[str]:
    """A database whose schemas have the names of the services."""
    name = f"own_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(f"create database {name}")
    yield urlsplit(postgres_dsn)._replace(path=f"/{name}").geturl()
    await connection.execute(f"drop database {name} with (force)")
    await connection.close()


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandalonePlatform]:
    """The whole platform, once per session, on two nodes with two slots each."""
    standing = StandalonePlatform(tmp_path_factory.mktemp("platform") / "home")
    standing.start()
    try:
        yield standing
    finally:
        standing.stop()


def starts_platform(path: str) -> bool:
    folders = ("e2e", "exchange", "faults", "fuzz", "kubernetes")
    return path.startswith(tuple(f"tests/{folder}/" for folder in folders))


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of one file run in one process; so do all that use the platform.

    Two platforms at once would be slow on two cores, and servers with certificates or a process
    that has imported torch take seconds to start.
    """

    def _split_scope(self, nodeid: str) -> str:
        if starts_platform(nodeid):
            return "platforms"
        for folder in ("tests/integration/security/", "tests/trainer/"):
            if nodeid.startswith(folder):
                return folder
        return nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that all processes end at about the same time."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(path: str) -> int:
    if starts_platform(path):
        return 0
    slow = ("tests/trainer/", "tests/integration/")
    return next((n for n, folder in enumerate(slow, 1) if path.startswith(folder)), 3)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-records", type=int, default=600, help="records of tests/fuzz")
    parser.addoption("--fuzz-seed", type=int, default=1, help="seed of tests/fuzz")
