"""The worker's places: who gets one."""

import asyncio

import pytest

from services.checkpoints import store_intents
from services.checkpoints.store_intents import Intent
from services.checkpoints.worker import Worker
from services.runtime.marked_store import MarkedStore
from tests.handlers.checkpoints.conftest import SETTINGS, Catalogue


async def test_a_job_with_much_to_do_leaves_places_to_others(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(catalogue.database, MarkedStore(catalogue.object_store, "t", None), SETTINGS)
    begun: set[str] = set()
    all_begun, may_end = asyncio.Event(), asyncio.Event()

    async def carry_out(intent: Intent) -> None:
        begun.add(intent.job_id)
        if begun == {"busy", "other"}:
            all_begun.set()
        await may_end.wait()

    monkeypatch.setattr(worker.actions, "carry_out", carry_out)
    async with catalogue.database.connection() as connection:
        for number in range(100):
            await store_intents.want(connection, "verify", "busy", str(number))
        await store_intents.want(connection, "verify", "other", "key")

    await worker._start_due()

    async with asyncio.timeout(10):
        await all_begun.wait()
    may_end.set()
    await asyncio.gather(*worker._tasks())
