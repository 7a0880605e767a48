from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from tests.databases import PreparedSchemas

# A page costs the same at any place. By its default Postgres joins some hundred rows by reading all
# of a table of some ten thousand, as it would not do in one of millions.
SETTINGS = "random_page_cost=1.01"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def schemas(postgres_dsn: str) -> AsyncIterator[PreparedSchemas]:
    administration = await asyncpg.connect(postgres_dsn)
    prepared = PreparedSchemas(f"{postgres_dsn}?{SETTINGS}", administration)
    yield prepared
    await prepared.close()
    await administration.close()
