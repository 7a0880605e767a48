"""Commands about budgets, written to Kafka and watched until the cost service has answered."""

from drivetrain_schemas.budgets import BudgetRemove, BudgetSet, BudgetSpec
from services.gateway import queries
from services.gateway.commands import (
    as_record,
    confirmed,
    event_id_of_key,
    publish,
    raise_refusal,
    read,
)
from services.gateway.context import Gateway


async def set_budget(
    gateway: Gateway, tenant_id: str, name: str, spec: BudgetSpec, key: str | None
) -> bool:
    """True once the cost service has accepted it; False without an answer yet. Raises Problem."""
    subject = f"{name}\0{spec.model_dump_json()}"
    event_id = event_id_of_key("budget.set", tenant_id, subject, key)
    command = BudgetSet(tenant_id=tenant_id, name=name, spec=spec)
    await publish(gateway, [as_record(gateway, tenant_id, event_id, command)])

    async def answer() -> bool | None:
        await raise_refusal(gateway, event_id, name)
        row = await read(gateway, queries.budgets.find, tenant_id, name)
        return True if row is not None and _spec(row) == spec else None

    return bool(await confirmed(gateway, command, answer))


async def remove_budget(gateway: Gateway, tenant_id: str, name: str, key: str | None) -> bool:
    """As `set_budget`."""
    event_id = event_id_of_key("budget.remove", tenant_id, name, key)
    command = BudgetRemove(tenant_id=tenant_id, name=name)
    await publish(gateway, [as_record(gateway, tenant_id, event_id, command)])

    async def answer() -> bool | None:
        await raise_refusal(gateway, event_id, name)
        row = await read(gateway, queries.budgets.find, tenant_id, name)
        return True if row is None else None

    return bool(await confirmed(gateway, command, answer))


def _spec(row: dict[str, object]) -> BudgetSpec:
    return BudgetSpec.model_validate({name: row[name] for name in BudgetSpec.model_fields})
