"""The page of slots over time: what they were used for, and who had them."""

from collections.abc import Callable
from typing import Any

import pytest

from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.core import fleet_page
from services.gateway.core.bars import HEIGHT, Part, stacked
from tests.handlers.gateway.model import Model, serving

HOUR = 3_600_000_000
JOB = "job_" + "a" * 26


def answer(by: str, num_steps: int = 48, step: str = "hour") -> dict[str, Any]:
    """Two pools: in each, a slot is used half of the time; a third of that is for nothing."""
    uses = (("productive", None), ("lost", None), ("idle", None))
    holders = {
        "project": (("held", "cars"), ("held", None), ("idle", None)),
        "job": (("held", JOB), ("others", None), ("idle", None)),
        "tenant": (("held", "default"), ("others", None), ("idle", None)),
    }
    series = []
    for pool in ("default", "lab"):
        for (kind, holder), amount in zip(holders.get(by, uses), (2, 1, 3), strict=True):
            series.append(
                {
                    "pool": pool,
                    "device_type": "gpu",
                    "kind": kind,
                    "holder": holder,
                    "name": "digits" if by == "job" and holder else None,
                    "slot_microseconds": [(1 + n % 3) * amount * HOUR for n in range(num_steps)],
                    "micro_usd": [amount * 1_000_000] * num_steps,
                }
            )
    length = {"hour": 1, "day": 24}[step]
    hours = [n * length for n in range(num_steps)]
    starts_at = [f"2026-02-{1 + n // 24:02}T{n % 24:02}:00:00Z" for n in hours]
    return {"step": step, "starts_at": starts_at, "pools": ["default", "lab"], "series": series}


def answers(asked: list[Any]) -> Callable[[str, str, Any], Any]:
    async def forward(part: str, path: str, parameters: Any) -> Any:
        asked.append((path, parameters))
        return answer(parameters["by"], 28 if parameters["step"] == "day" else 48,
                      parameters["step"])  # fmt: skip

    return forward


async def test_slots_by_use_and_by_holder(model: Model) -> None:
    asked: list[Any] = []
    async with serving(model, forward=answers(asked)) as server:
        page = (await server.client.get("/fleet?first=2026-02-01&last=2026-02-02")).text
    wanted = {"first": "2026-02-01", "last": "2026-02-02", "step": "hour", "pool": None}
    path = "/fleet/default"
    assert asked == [(path, {**wanted, "by": "use"}), (path, {**wanted, "by": "project"})]
    text = " ".join(page.split())
    assert text.count("<rect") == 2 * 3 * 48
    assert "Feb 1, 02:00: 12.0 slot hours productive" in text
    assert '<a href="/?project=cars">cars</a>' in text
    assert "no project" in text
    assert "slots, on average of each hour (UTC)" in text
    assert [f">{mark}</text>" in text for mark in (30, "Feb 1, 12:00")] == [True] * 2
    # 48 hours of 2, 1 and 3 dollars in each of two pools.
    assert [amount in text for amount in ("$192.00", "$96.00", "$288.00")] == [True] * 3
    assert "33.3 %" in text


async def test_days_lead_to_their_hours_and_jobs_to_their_pages(model: Model) -> None:
    asked: list[Any] = []
    async with serving(model, forward=answers(asked)) as server:
        address = "/fleet?step=day&by=job&first=2026-02-01&last=2026-02-28&pool=lab"
        text = (await server.client.get(address)).text
    assert asked[1][1]["pool"] == "lab"
    assert f'<a href="/jobs/{JOB}">digits</a>' in text
    assert "Feb 28" in text
    assert ">others<" in text


@pytest.mark.parametrize(
    "query", ["first=x", "step=week", "by=user", "last=9999-12-31", f"pool={'p' * 64}"]
)
async def test_a_wrong_address_is_refused(model: Model, query: str) -> None:
    async with serving(model) as server:
        assert (await server.client.get(f"/fleet?{query}")).status_code == 422
        assert (await server.client.get(f"/v1/cost/fleet?{query}")).status_code == 422


async def test_what_the_cost_service_refuses_is_said(model: Model) -> None:
    async def refuse(part: str, path: str, parameters: Any) -> Any:
        raise PartRefused(422, "first: hours are kept since 2026-02-05: write step=day")

    async with serving(model, forward=refuse) as server:
        assert "hours are kept since" in (await server.client.get("/fleet")).text
        refused = await server.client.get("/v1/cost/fleet")
        assert (refused.status_code, refused.json()["detail"][:5]) == (422, "first")

    async def misconfigured(part: str, path: str, parameters: Any) -> Any:
        raise PartUnavailable(part, "it refuses the read token")

    async with serving(model, forward=misconfigured) as server:
        assert "it refuses the read token" in (await server.client.get("/fleet")).text
    async with serving(model) as server:
        assert "does not answer" in (await server.client.get("/fleet")).text
        assert (await server.client.get("/v1/cost/fleet")).status_code == 503


def test_the_largest_holder_is_at_the_bottom_and_idle_on_top() -> None:
    series = answer("project")["series"]
    smaller = {**series[0], "holder": "boats", "slot_microseconds": [1] * 48}
    last = {**series[0], "kind": "others", "holder": None}
    found = fleet_page.lines([smaller, last, *series], "project")
    assert [line.name for line in found] == ["cars", "no project", "boats", "others", "idle"]
    assert [line.style for line in found][:3] == ["holder-1", "holder-2", "holder-3"]
    assert found[0].slot_microseconds[0] == 2 * 2 * HOUR


def test_a_bar_is_as_high_as_its_parts() -> None:
    drawn = stacked(
        [[Part("a", 1, ""), Part("b", 2, "")], [], [Part("a", 6, ""), Part("b", -1, "")]]
    )
    assert [(piece.style, piece.x, piece.y, piece.height) for piece in drawn.pieces] == [
        ("a", 0, 100.0, 20.0),
        ("b", 0, 60.0, 40.0),
        ("a", 40, 0.0, HEIGHT),
    ]
    assert stacked([]).pieces == ()
