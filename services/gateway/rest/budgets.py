"""Routes about budgets."""

from typing import Annotated, Any

from fastapi import APIRouter, Path

from drivetrain_schemas.base import Strict
from drivetrain_schemas.budgets import BudgetSpec
from drivetrain_schemas.jobs import Name
from services.gateway import budget_commands, queries
from services.gateway.backends import PartUnavailable
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.problem import Problem, invalid, not_found
from services.gateway.rest import models
from services.gateway.rest.jobs import IdempotencyKey
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1/budgets", tags=["money"])


class SetBudget(Strict):
    """Create the budget of this name, or change it."""

    name: Name
    spec: BudgetSpec


@router.get("", responses=answers())
async def list_budgets(gateway: GatewayDep, caller: CallerDep) -> models.BudgetList:
    """Every budget with its spend in this period."""
    async with gateway.platform.database.connection() as connection:
        rows = await queries.budgets.present(connection, caller.tenant_id)
    spent = await _spent(gateway, caller.tenant_id)
    return models.BudgetList(budgets=[_budget(row, spent) for row in rows])


@router.post("", status_code=202, responses=answers(400, 413, 415, 422))
async def set_budget(
    body: SetBudget,
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Set the budget, and wait up to two seconds for the answer."""
    await _check_subject(gateway, caller.tenant_id, body.spec)
    is_confirmed = await budget_commands.set_budget(
        gateway, caller.tenant_id, body.name, body.spec, idempotency_key
    )
    return models.Accepted(is_confirmed=is_confirmed)


@router.post("/{name}/remove", status_code=202, responses=answers(400, 404, 413, 415, 422))
async def remove_budget(
    name: Annotated[str, Path(max_length=63)],
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Remove the budget, and with it what it holds back."""
    async with gateway.platform.database.connection() as connection:
        if await queries.budgets.find(connection, caller.tenant_id, name) is None:
            raise not_found("budget", name)
    is_confirmed = await budget_commands.remove_budget(
        gateway, caller.tenant_id, name, idempotency_key
    )
    return models.Accepted(is_confirmed=is_confirmed)


async def _spent(gateway: Gateway, tenant_id: str) -> dict[str, Any]:
    """By name, from the cost service; empty where it does not answer."""
    try:
        answer = await gateway.backends.get("cost", f"/budgets/{tenant_id}")
    except PartUnavailable:
        return {}
    return {each["name"]: each for each in answer["budgets"]}


def _budget(row: dict[str, Any], spent: dict[str, Any]) -> models.Budget:
    known = models.Budget.model_fields.keys() - {"spent_micro_usd"}
    facts = {name: row[name] for name in known & row.keys()}
    if row["reached_seq"] < row["changed_seq"]:
        # It was told of an earlier spec, or of a removed budget of this name.
        facts |= {"reached_percent": 0, "reached_at": None}
    facts |= spent.get(row["name"], {})
    if not facts["reached_percent"]:
        facts["reached_at"] = None  # it was in an earlier period
    elif facts["reached_percent"] == 100:
        facts["used_up_at"] = facts["reached_at"]
    return models.Budget.model_validate(facts)


async def _check_subject(gateway: Gateway, tenant_id: str, spec: BudgetSpec) -> None:
    """Refuse a budget of a job or study that does not exist: nothing would ever count for it."""
    async with gateway.platform.database.connection() as connection:
        if spec.job_id is not None and not await queries.jobs.find(
            connection, tenant_id, spec.job_id
        ):
            raise _unknown("job", spec.job_id)
        if spec.study_id is not None and not await queries.studies.find(
            connection, tenant_id, spec.study_id
        ):
            raise _unknown("study", spec.study_id)


def _unknown(noun: str, subject_id: str) -> Problem:
    return invalid(
        f"spec.{noun}_id",
        f"there is no {noun} {subject_id}",
        "submit it first, or correct the id",
    )
