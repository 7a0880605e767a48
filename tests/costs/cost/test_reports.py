"""Reports over time: chargeback, who had the pools, slots over time; and what is spent by now."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio

from services.cost import store, store_accrual, store_recommend
from services.cost.api import read_api
from services.cost.corrections import Corrections
from tests.conftest import OpenDatabase
from tests.costs.cost.world import BOOK, TENANT, job, world
from tests.costs.counting import FACTOR, Runs, measure

MONTHS, JOBS = 1200, 60


def of_days(path: str) -> str:
    """Of this month until today. Hours are of today."""
    today = datetime.now(UTC).date()
    first = today if "step=hour" in path else today.replace(day=1)
    sign = "&" if "?" in path else "?"
    return f"{path}{sign}first={first}&last={today}"


PATHS = {
    "chargeback by job": f"/chargeback/{TENANT}?by=job",
    "chargeback by tenant": f"/chargeback/{TENANT}?by=tenant",
    "pools": f"/pools/{TENANT}",
    "fleet by use": f"/fleet/{TENANT}?by=use&step=hour",
    "fleet by project": f"/fleet/{TENANT}?by=project&step=hour",
    "fleet by job": f"/fleet/{TENANT}?by=job&step=day",
}
SPENT = {
    "spend of a tenant": f"/spend/tenants/{TENANT}",
    "spend of a job": f"/spend/jobs/{job(7)}",
    "spend of a job that runs": f"/spend/jobs/{job(2, 'held')}",
}


async def lost_on_spot(platform: Any) -> None:
    """Of all days: it reads pools, never their jobs."""
    async with platform.database.connection() as connection:
        found = await store_recommend.lost_on_spot(connection, date(2020, 1, 1), date(2100, 1, 1))
    assert found


async def spend_per_hour(platform: Any) -> None:
    async with platform.database.connection() as connection:
        assert await store.held_slots(connection)
        await store_accrual.num_unreleased(connection)


READS = (lost_on_spot, spend_per_hour, Corrections(BOOK).reprice)


Worlds = Mapping[int, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def histories(kept_database: OpenDatabase) -> Worlds:
    """By how many jobs have ended before this month."""
    return {size: await world(kept_database, size, 5, 5) for size in (MONTHS, FACTOR * MONTHS)}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lately(kept_database: OpenDatabase) -> Worlds:
    """By how many jobs hold a slot, and how many have ended in the last ten minutes."""
    return {size: await world(kept_database, 100, size, size) for size in (JOBS, FACTOR * JOBS)}


async def asking(worlds: Worlds, path: str, size: int) -> Runs:
    transport = httpx.ASGITransport(app=read_api(worlds[size], BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        while True:
            yield partial(answer, client, of_days(path))


async def looking(worlds: Worlds, read: Any, size: int) -> Runs:
    while True:
        yield partial(read, worlds[size])


async def answer(client: httpx.AsyncClient, path: str) -> None:
    found = await client.get(path)
    assert found.status_code == 200, found.text


@pytest.mark.parametrize("path", (PATHS | SPENT).values(), ids=(PATHS | SPENT).keys())
async def test_a_report_costs_nothing_for_the_months_before(histories: Worlds, path: str) -> None:
    (await measure(partial(asking, histories, path), MONTHS)).assert_flat()


@pytest.mark.parametrize("read", READS)
async def test_a_look_costs_nothing_for_the_months_before(histories: Worlds, read: Any) -> None:
    (await measure(partial(looking, histories, read), MONTHS)).assert_flat()


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
async def test_a_report_costs_as_much_as_what_is_not_shared_out_yet(
    lately: Worlds, path: str
) -> None:
    growth = await measure(partial(asking, lately, path), JOBS)
    growth.assert_linear()
    growth.assert_flat("statements")
