"""Budgets in the read model and by REST."""

import itertools
import re
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.budgets import (
    AtLimit,
    BudgetChanged,
    BudgetReached,
    BudgetReleased,
    BudgetRemoved,
    BudgetRequestRejected,
    BudgetSet,
    BudgetSpec,
)
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.jobs import FieldError
from services.gateway.backends import Backends
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.story import TENANT

NOW = datetime(2026, 2, 1, tzinfo=UTC)
SPEC = BudgetSpec(limit_micro_usd=500_000_000, at_limit=AtLimit.STOP)
_seqs = itertools.count(1)


def told(payload: Payload) -> Event[Any]:
    seq = next(_seqs)
    return Event(f"event-{seq}", "/drivetrain/cost", NOW, TENANT, payload, seq=seq)


def changed(version: int = 1, spec: BudgetSpec = SPEC) -> Event[Any]:
    return told(
        BudgetChanged(tenant_id=TENANT, name="vision", version=version, spec=spec, changed_at=NOW)
    )


def reached(percent: int) -> Event[Any]:
    return told(
        BudgetReached(
            tenant_id=TENANT,
            name="vision",
            version=1,
            percent=percent,
            action=AtLimit.STOP if percent == 100 else AtLimit.WARN,
            spent_micro_usd=percent * 5_000_000,
            spec=SPEC,
            reached_at=NOW,
        )
    )


async def listed(server: Server) -> list[dict[str, Any]]:
    budgets: list[dict[str, Any]] = (await server.client.get("/v1/budgets")).json()["budgets"]
    return budgets


async def test_a_budget_is_listed_with_what_it_has_reached(model: Model) -> None:
    await model.tell(changed(), reached(80), reached(100))
    async with serving(model) as server:
        (budget,) = await listed(server)
    assert (budget["name"], budget["limit_micro_usd"]) == ("vision", 500_000_000)
    assert (budget["reached_percent"], budget["at_limit"]) == (100, "stop")
    # There is no cost service here, so what is spent now is unknown.
    assert budget["spent_micro_usd"] is None


async def test_a_released_and_a_removed_budget(model: Model) -> None:
    release = BudgetReleased(
        tenant_id=TENANT,
        name="vision",
        version=2,
        reason="changed",
        spent_micro_usd=1,
        released_at=NOW,
    )
    await model.tell(changed(), reached(100), told(release))
    async with serving(model) as server:
        assert [each["reached_percent"] for each in await listed(server)] == [0]
        removed = BudgetRemoved(tenant_id=TENANT, name="vision", version=2, removed_at=NOW)
        await model.tell(told(removed))
        assert await listed(server) == []
        gone = await server.client.post("/v1/budgets/vision/remove")
    assert gone.status_code == 404


async def test_setting_is_confirmed_by_the_event_with_this_spec(model: Model) -> None:
    body = {"name": "vision", "spec": SPEC.model_dump(mode="json")}
    async with serving(model, answer=lambda _: [changed()]) as server:
        answer = await server.client.post("/v1/budgets", json=body)
        (command,) = server.bus.commands("commands.budgets")
    assert (answer.status_code, answer.json()["is_confirmed"]) == (202, True)
    assert isinstance(command.payload, BudgetSet)
    assert (command.payload.tenant_id, command.payload.spec) == (TENANT, SPEC)


async def test_without_an_answer_it_is_sent_and_not_confirmed(server: Server) -> None:
    body = {"name": "vision", "spec": SPEC.model_dump(mode="json")}
    answer = await server.client.post("/v1/budgets", json=body)
    assert (answer.status_code, answer.json()["is_confirmed"]) == (202, False)


async def test_a_refusal_names_field_and_fix(model: Model) -> None:
    def refuse(command: Event[Any]) -> list[Event[Any]]:
        error = FieldError(field="spec.limit_micro_usd", message="too little", fix="write more")
        rejected = BudgetRequestRejected(
            tenant_id=TENANT,
            name="vision",
            command_event_id=command.event_id,
            reason="already_spent",
            detail="too little",
            errors=(error,),
        )
        return [told(rejected)]

    async with serving(model, answer=refuse) as server:
        body = {"name": "vision", "spec": SPEC.model_dump(mode="json")}
        answer = await server.client.post("/v1/budgets", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "already_spent")
    assert answer.json()["errors"][0]["fix"] == "write more"


async def test_a_wrong_spec_is_refused_before_it_is_sent(server: Server) -> None:
    for spec, field in (
        ({"limit_micro_usd": 0}, "limit_micro_usd"),
        ({"limit_micro_usd": 1, "period": "week"}, "period"),
        ({"limit_micro_usd": 1, "warn_percents": [100]}, "warn_percents"),
    ):
        answer = await server.client.post("/v1/budgets", json={"name": "b", "spec": spec})
        assert answer.status_code == 422, spec
        assert field in answer.json()["errors"][0]["field"]


async def test_what_an_earlier_spec_had_reached_is_not_shown(model: Model) -> None:
    larger = SPEC.model_copy(update={"limit_micro_usd": 10**12})
    await model.tell(changed(), reached(80), changed(2, larger))
    async with serving(model) as server:
        (budget,) = await listed(server)
    assert (budget["reached_percent"], budget["reached_at"]) == (0, None)
    await model.tell(reached(100))
    async with serving(model) as server:
        (budget,) = await listed(server)
    assert budget["reached_percent"] == 100


async def test_what_an_earlier_period_had_reached_is_not_shown(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A period without a limit reached ends without an event; the cost service knows."""
    await model.tell(changed(), reached(80))
    now = {"name": "vision", "reached_percent": 0, "spent_micro_usd": 1}
    async with serving(model) as server:
        monkeypatch.setattr(Backends, "get", AsyncMock(return_value={"budgets": [now]}))
        (budget,) = await listed(server)
    assert (budget["reached_percent"], budget["reached_at"]) == (0, None)


async def test_a_budget_that_is_used_up_says_when(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    await model.tell(changed(), reached(100))
    now = {"name": "vision", "reached_percent": 100, "spent_micro_usd": 10**9, "used_up_at": None}
    async with serving(model) as server:
        monkeypatch.setattr(Backends, "get", AsyncMock(return_value={"budgets": [now]}))
        (budget,) = await listed(server)
    assert datetime.fromisoformat(budget["used_up_at"]) == NOW


async def test_the_page_says_how_sure_the_forecast_is(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    await model.tell(changed())
    now = {
        "name": "vision",
        "reached_percent": 0,
        "spent_micro_usd": 1,
        "used_up_at": "2026-02-03T00:00:00Z",
        "used_up_earliest": "2026-02-02T00:00:00Z",
        "used_up_latest": None,
    }
    async with serving(model) as server:
        monkeypatch.setattr(Backends, "get", AsyncMock(return_value={"budgets": [now]}))
        page = (await server.client.get("/costs")).text
    (said,) = re.findall(r"likely used up.*", page)
    text = " ".join(re.sub(r"<[^>]*>", "", said).split())
    assert re.fullmatch(r"likely used up \S.*: \S.* at the earliest, or not in this period", text)


@pytest.mark.parametrize(
    ("field", "subject_id"),
    [("job_id", job_id_for(TENANT, "none")), ("study_id", study_id_for(TENANT, "none"))],
)
async def test_a_budget_of_nothing_is_refused(server: Server, field: str, subject_id: str) -> None:
    spec = {"limit_micro_usd": 1, field: subject_id}
    answer = await server.client.post("/v1/budgets", json={"name": "b", "spec": spec})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"spec.{field}"
    assert subject_id in answer.json()["errors"][0]["message"]
