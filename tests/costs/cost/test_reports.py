"""Reports over time: chargeback, who had the pools, and slots over time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio

from services.cost.api import read_api
from tests.conftest import OpenDatabase
from tests.costs.cost.world import BOOK, TENANT, world
from tests.costs.counting import FACTOR, Runs, measure

MONTHS, JOBS = 2500, 60


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
by_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())


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


async def answer(client: httpx.AsyncClient, path: str) -> None:
    found = await client.get(path)
    assert found.status_code == 200, found.text


@by_path
async def test_a_report_costs_nothing_for_the_months_before(histories: Worlds, path: str) -> None:
    (await measure(partial(asking, histories, path), MONTHS)).assert_flat()


@by_path
async def test_a_report_costs_as_much_as_what_is_not_shared_out_yet(
    lately: Worlds, path: str
) -> None:
    growth = await measure(partial(asking, lately, path), JOBS)
    growth.assert_linear()
    growth.assert_flat("statements")
