"""What a pass over uploaded code costs."""

import secrets
from dataclasses import replace
from functools import partial

from services.gateway import stored_code
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.rows import analyze
from tests.fakes import InMemoryObjectStore
from tests.handlers.gateway.model import Model, serving


async def test_code_that_stays_costs_a_pass_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        model = Model(await database("gateway"))
        async with serving(model) as server:
            store = InMemoryObjectStore()
            platform = replace(server.platform, object_store=store)
            await put(model, "infinity", size)
            await put(model, "tomorrow", size)
            while True:
                await put(model, "yesterday", 5)
                yield partial(stored_code.delete_some, platform)

    (await measure(scenario, 2000)).assert_flat()


async def put(model: Model, until: str, number: int) -> None:
    hashes = [secrets.token_hex(32) for _ in range(number)]
    async with model.database.transaction() as tx:
        await tx.connection.execute(
            "insert into code select 'default', unnest($1::text[]), 1, $2::text::timestamptz",
            hashes,
            until,
        )
    await analyze(model.database)
