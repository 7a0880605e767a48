"""What the read API says: charged and accruing, by the same code that charges."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx
import pytest
import pytest_asyncio

from drivetrain_schemas.ids import allocation_id_for
from services.cost.api import read_api
from services.cost.handlers import handlers
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.fakes import ManualClock
from tests.handlers.cost.test_handlers import BOOK, JOB, granted, released


class Api:
    """The read API of a cost service whose events the test gives."""

    def __init__(self, database, client: httpx.AsyncClient) -> None:
        self._database = database
        self._client = client

    async def deliver(self, *payloads) -> None:
        await handle(self._database, handlers(BOOK), *map(make_event, payloads))

    async def get(self, path: str, **query) -> httpx.Response:
        return await self._client.get(path, params=query)


@pytest_asyncio.fixture
async def api(database: OpenDatabase) -> AsyncIterator[Api]:
    db = await database("cost")
    platform = SimpleNamespace(database=db, clock=ManualClock(datetime(2026, 2, 1, tzinfo=UTC)))
    transport = httpx.ASGITransport(app=read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        yield Api(db, client)


async def test_what_is_held_accrues(api: Api) -> None:
    await api.deliver(granted())
    spend = (await api.get(f"/spend/jobs/{JOB}")).json()
    assert spend["charged_micro_usd"] == 0
    # Two slots at 36 dollars an hour since the grant, which is in the past.
    held = datetime.now(UTC) - granted().granted_at
    assert abs(spend["accruing_micro_usd"] - held.total_seconds() * 20_000) < 20_000 * 60
    assert spend["total_micro_usd"] == spend["accruing_micro_usd"]


async def test_what_is_released_is_charged_and_accrues_no_more(api: Api) -> None:
    await api.deliver(granted(), released(timedelta(seconds=1)))
    want = {
        "charged_micro_usd": 20_000,
        "accruing_micro_usd": 0,
        "total_micro_usd": 20_000,
        "platform_micro_usd": 0,
        "storage_micro_usd": 0,
        "unpriced": [],
    }
    assert (await api.get(f"/spend/jobs/{JOB}")).json() == want
    assert (await api.get("/spend/tenants/default")).json() == want


@pytest.mark.parametrize("is_released", [False, True])
async def test_spend_names_what_no_price_covers(api: Api, is_released: bool) -> None:
    """Its price is unknown, so it is not shown as free."""
    kind = {"device_type": "nvidia-h200", "allocation_id": allocation_id_for(JOB, 2)}
    await api.deliver(released(timedelta(seconds=1)))
    await api.deliver(
        released(timedelta(seconds=1)).model_copy(update=kind)
        if is_released
        else granted().model_copy(update=kind)
    )
    for path in (f"/spend/jobs/{JOB}", "/spend/tenants/default"):
        spend = (await api.get(path)).json()
        assert spend["total_micro_usd"] == 20_000
        assert spend["unpriced"] == [{"pool": "default", "device_type": "nvidia-h200"}]


async def test_the_platform_s_own_cost_is_shown_beside_the_spend(api: Api) -> None:
    await api.deliver(granted(), released(timedelta(seconds=3), paid=timedelta(seconds=1)))
    for path in (f"/spend/jobs/{JOB}", "/spend/tenants/default"):
        spend = (await api.get(path)).json()
        assert (spend["total_micro_usd"], spend["platform_micro_usd"]) == (20_000, 40_000)


async def test_another_tenant_spent_nothing(api: Api) -> None:
    await api.deliver(granted(), released(timedelta(seconds=1)))
    assert (await api.get("/spend/tenants/other")).json()["total_micro_usd"] == 0


async def test_an_estimate_is_what_would_be_charged(api: Api) -> None:
    answer = await api.get("/estimate", device_type="cpu", devices=2, seconds=1)
    assert answer.json()["estimated_micro_usd"] == 20_000


async def test_there_is_no_estimate_without_a_price(api: Api) -> None:
    answer = await api.get("/estimate", device_type="tpu", devices=1, seconds=1)
    assert answer.status_code == 404
    assert "tpu" in answer.json()["detail"]
