"""Budgets: the commands that set them, and the news about them.

A crossing is recorded on the budget's locked row and emitted in the same transaction, so several
processes of this service emit it once.
"""

from datetime import datetime
from functools import partial
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas.base import Payload
from drivetrain_schemas.budgets import (
    MAX_BUDGETS,
    AtLimit,
    BudgetChanged,
    BudgetReached,
    BudgetReleased,
    BudgetRemove,
    BudgetRemoved,
    BudgetRequestRejected,
    BudgetSet,
    BudgetSpec,
)
from drivetrain_schemas.envelope import Event, InvalidPayload
from drivetrain_schemas.ids import TenantId
from drivetrain_schemas.jobs import FieldError, Name
from services.cost import store, store_budgets
from services.cost.core import budgets as core
from services.cost.core.prices import PriceBook
from services.cost.instruments import BUDGET_REQUESTS, BUDGETS_REACHED
from services.cost.spent import Spent, as_budget, reached_at, spent
from services.cost.store_budgets import BudgetRow
from services.runtime import logs
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx

log = logs.get()

Reason = Literal["invalid_spec", "no_such_budget", "too_many", "already_spent", "wrong_tenant"]
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_TENANT: TypeAdapter[str] = TypeAdapter(TenantId)


class BudgetCommands:
    """The handlers of commands about budgets, at the prices of `book`."""

    def __init__(self, book: PriceBook) -> None:
        self._book = book

    @property
    def handlers(self) -> HandlerTable:
        return {BudgetSet: self.on_set, BudgetRemove: self.on_remove}

    async def on_set(self, tx: Tx, event: Event[BudgetSet]) -> None:
        command = event.payload
        if await _is_foreign(tx, event, command.tenant_id, command.name):
            return
        before = await store_budgets.lock_budget(tx.connection, event.tenant_id, command.name)
        if before is not None and before.spec == command.spec:
            _count(tx, "repeated")
            return
        if before is None and (
            await store_budgets.num_budgets(tx.connection, event.tenant_id) >= MAX_BUDGETS
        ):
            detail = f"the tenant has {MAX_BUDGETS} budgets"
            await _reject(tx, event, command.name, "too_many", detail, "name", "remove one first")
            return
        now = await store.now(tx.connection)
        held = await store_budgets.open_usages(tx.connection, [event.tenant_id])
        wanted = BudgetRow(event.tenant_id, command.name, 0, command.spec)
        (found,) = await spent(tx.connection, [wanted], held, self._book, now)
        micro_usd = found.micro_usd
        if _counts_anew(before, command.spec) and micro_usd >= command.spec.limit_micro_usd:
            detail = f"{micro_usd} micro-dollars are spent in this period already"
            fix = f"write more than {micro_usd}; to stop spending now, cancel the jobs"
            field = "spec.limit_micro_usd"
            await _reject(tx, event, command.name, "already_spent", detail, field, fix)
            return
        row = await store_budgets.put_budget(
            tx.connection, event.tenant_id, command.name, command.spec
        )
        await self._change(tx, event, row, before, found, now)

    async def _change(
        self,
        tx: Tx,
        event: Event[BudgetSet],
        row: BudgetRow,
        before: BudgetRow | None,
        found: Spent,
        now: datetime,
    ) -> None:
        changed = BudgetChanged(
            tenant_id=row.tenant_id,
            name=row.name,
            version=row.version,
            spec=row.spec,
            changed_at=now,
        )
        await tx.emit(changed, tenant_id=row.tenant_id, cause=event)
        _count(tx, "set")
        log.info("budget changed", tenant_id=row.tenant_id, budget=row.name, version=row.version)
        if before is not None and before.reached_percent == core.LIMIT:
            await _release(tx, row, "changed", found.micro_usd, now)
        await tell(tx, row, found, self._book, now)

    async def on_remove(self, tx: Tx, event: Event[BudgetRemove]) -> None:
        command = event.payload
        if await _is_foreign(tx, event, command.tenant_id, command.name):
            return
        row = await store_budgets.lock_budget(tx.connection, event.tenant_id, command.name)
        if row is None:
            detail = f"there is no budget {command.name!r}"
            await _reject(tx, event, command.name, "no_such_budget", detail, "name", "")
            return
        await store_budgets.delete_budget(tx.connection, row.tenant_id, row.name)
        removed = BudgetRemoved(
            tenant_id=row.tenant_id,
            name=row.name,
            version=row.version,
            removed_at=await store.now(tx.connection),
        )
        await tx.emit(removed, tenant_id=row.tenant_id, cause=event)
        _count(tx, "removed")
        log.info("budget removed", tenant_id=row.tenant_id, budget=row.name)


async def tell(tx: Tx, row: BudgetRow, found: Spent, book: PriceBook, now: datetime) -> None:
    """Emit what this spend means for the budget, and record it on the locked row."""
    micro_usd = found.micro_usd
    judged = core.judge(as_budget(row), micro_usd, now)
    budget = judged.budget
    if (budget.reached_percent, budget.period_starts_at) != (
        row.reached_percent,
        row.period_starts_at,
    ):
        await store_budgets.set_reached(
            tx.connection, row, budget.reached_percent, budget.period_starts_at
        )
    for news in judged.news:
        if isinstance(news, core.Released):
            await _release(tx, row, news.reason, micro_usd, now)
            continue
        since = await reached_at(tx.connection, row, found, news.percent, book, now)
        reached = BudgetReached(
            tenant_id=row.tenant_id,
            name=row.name,
            version=row.version,
            percent=news.percent,
            action=AtLimit(news.action),
            spent_micro_usd=micro_usd,
            spec=row.spec,
            period_starts_at=budget.period_starts_at,
            reached_at=since or now,
        )
        await tx.emit(reached, tenant_id=row.tenant_id)
        tx.after_commit(partial(_note_reached, reached))


async def refuse_invalid(tx: Tx, invalid: InvalidPayload) -> bool:
    """Answer a request that is not valid; its record's key is the tenant's, so it has an answer."""
    attributes = invalid.attributes
    data = invalid.data if isinstance(invalid.data, dict) else {}
    try:
        _TENANT.validate_python(attributes.tenant_id)
        name = _NAME.validate_python(data.get("name"))
    except ValidationError:
        name = None
    rejected = BudgetRequestRejected(
        tenant_id=attributes.tenant_id,
        name=name,
        command_event_id=attributes.event_id,
        reason="invalid_spec",
        detail=invalid.detail[:1000],
        errors=invalid.errors,
    )
    await tx.emit(rejected, tenant_id=attributes.tenant_id)
    _count(tx, "invalid_spec")
    return True


def _counts_anew(before: BudgetRow | None, spec: BudgetSpec) -> bool:
    """Is something else compared than before: another limit, subject or period?"""
    unchanged = {"at_limit", "warn_percents"}
    return before is None or before.spec.model_dump(exclude=unchanged) != spec.model_dump(
        exclude=unchanged
    )


async def _release(
    tx: Tx,
    row: BudgetRow,
    reason: Literal["new_period", "changed", "corrected"],
    micro_usd: int,
    now: datetime,
) -> None:
    await store_budgets.forget_stops(tx.connection, row)
    released = BudgetReleased(
        tenant_id=row.tenant_id,
        name=row.name,
        version=row.version,
        reason=reason,
        spent_micro_usd=micro_usd,
        released_at=now,
    )
    await tx.emit(released, tenant_id=row.tenant_id)
    log.info("budget released", tenant_id=row.tenant_id, budget=row.name, reason=reason)


async def _is_foreign(tx: Tx, event: Event[Payload], tenant_id: str, name: str) -> bool:
    """Refuse a command about another tenant's budget."""
    if tenant_id == event.tenant_id:
        return False
    detail = f"the request is of tenant {event.tenant_id}"
    await _reject(tx, event, name, "wrong_tenant", detail, "tenant_id", "name your own tenant")
    return True


async def _reject(
    tx: Tx, event: Event[Payload], name: str, reason: Reason, detail: str, field: str, fix: str
) -> None:
    error = FieldError(field=field, message=detail, fix=fix)
    rejected = BudgetRequestRejected(
        tenant_id=event.tenant_id,
        name=name,
        command_event_id=event.event_id,
        reason=reason,
        detail=detail,
        errors=(error,),
    )
    await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
    _count(tx, reason)
    log.info("budget request rejected", tenant_id=event.tenant_id, budget=name, reason=reason)


def _note_reached(reached: BudgetReached) -> None:
    BUDGETS_REACHED.labels(reached.action.value).inc()
    log.warning(
        "budget reached", tenant_id=reached.tenant_id, budget=reached.name,
        percent=reached.percent, spent_micro_usd=reached.spent_micro_usd, action=reached.action,
    )  # fmt: skip


def _count(tx: Tx, answer: str) -> None:
    tx.after_commit(BUDGET_REQUESTS.labels(answer).inc)


REFUSALS: RefusalTable = {BudgetSet: refuse_invalid, BudgetRemove: refuse_invalid}
