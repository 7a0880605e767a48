"""A pass of the outbox relay, until all rows are published and deleted."""

from collections.abc import Sequence

import pytest

from services.runtime import relay as relay_module
from services.runtime.bus import DELIVERED, OnSettled, OutRecord
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.relay import Relay
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.rows import analyze
from tests.handlers.runtime.charges import charge

BATCH_ROWS = 50


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth shows from several batches on."""
    monkeypatch.setattr(relay_module, "BATCH_ROWS", BATCH_ROWS)


class Broker:
    """Acknowledges everything at once."""

    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        assert on_settled is not None
        for index in range(len(records)):
            on_settled(index, DELIVERED)

    async def close(self) -> None: ...


async def emit(database: Database, number: int, num_keys: int) -> None:
    async with database.transaction() as tx:
        for each in range(number):
            tenant_id = f"tenant-{each % num_keys}"
            await tx.emit(charge(each, tenant_id), tenant_id=tenant_id)
    await analyze(database)


@pytest.mark.parametrize("rows_of_a_key", [1, 10_000])
async def test_a_pass_costs_as_much_as_it_publishes(
    database: OpenDatabase, rows_of_a_key: int
) -> None:
    async def scenario(size: int) -> Runs:
        db = await database("cost")
        relay = Relay(db, Broker(), SystemClock())
        while True:
            await emit(db, size, num_keys=max(1, size // rows_of_a_key))
            yield relay.drain

    (await measure(scenario, 4 * BATCH_ROWS)).assert_linear()


async def test_what_was_published_before_costs_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        db = await database("cost")
        relay = Relay(db, Broker(), SystemClock())
        await emit(db, size, num_keys=size)
        await relay.drain()
        while True:
            await emit(db, 100, num_keys=10)
            yield relay.drain

    (await measure(scenario, 500)).assert_flat()
