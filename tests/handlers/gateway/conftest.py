from collections.abc import AsyncIterator

import pytest_asyncio

from services.runtime.database import Database
from services.runtime.transaction import Origin
from tests.conftest import OpenDatabase
from tests.handlers.gateway.model import Model, Server, serving


@pytest_asyncio.fixture(loop_scope="session")
async def model(database: OpenDatabase) -> Model:
    return Model(await database("gateway"))


@pytest_asyncio.fixture(loop_scope="session")
async def server(model: Model) -> AsyncIterator[Server]:
    """The HTTP side, without services that answer commands."""
    async with serving(model) as standing:
        yield standing


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def quiet_server(postgres_dsn: str) -> AsyncIterator[Server]:
    """One server for all tests that only ask for what is refused, and so leave nothing behind."""
    schema = "gateway_quiet"
    database = Database(postgres_dsn, schema, Origin("/drivetrain/gateway", "drivetrain."))
    await database.open(["services.gateway"])
    async with serving(Model(database)) as standing:
        yield standing
    await database.close()
