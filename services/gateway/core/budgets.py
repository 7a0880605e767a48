"""Budgets: what may be spent, and what the spend has reached."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.budgets import (
    BudgetChanged,
    BudgetReached,
    BudgetReleased,
    BudgetRemoved,
)
from drivetrain_schemas.envelope import Event
from services.gateway.core.noun import NEVER, Noun, newest


@dataclass(frozen=True, slots=True)
class Budget:
    """`reached_percent`: the last level told; 0 after a release. `spent_micro_usd` is of then."""

    tenant_id: str
    name: str
    changed_seq: int = NEVER
    version: int = 0
    is_removed: bool = True
    limit_micro_usd: int = 0
    period: str = ""
    study_id: str | None = None
    job_id: str | None = None
    project: str | None = None
    warn_percents: tuple[Any, ...] = ()
    at_limit: str = ""
    reached_seq: int = NEVER
    reached_percent: int = 0
    spent_micro_usd: int = 0
    reached_at: datetime | None = None


def _changed(budget: Budget, event: Event[BudgetChanged]) -> Budget:
    spec = event.payload.spec
    return newest(
        budget,
        "changed_seq",
        event,
        version=event.payload.version,
        is_removed=False,
        limit_micro_usd=spec.limit_micro_usd,
        period=spec.period.value,
        study_id=spec.study_id,
        job_id=spec.job_id,
        project=spec.project,
        warn_percents=list(spec.warn_percents),
        at_limit=spec.at_limit.value,
    )


def _removed(budget: Budget, event: Event[BudgetRemoved]) -> Budget:
    return newest(budget, "changed_seq", event, is_removed=True)


def _reached(budget: Budget, event: Event[BudgetReached]) -> Budget:
    reached = event.payload
    return newest(
        budget,
        "reached_seq",
        event,
        reached_percent=reached.percent,
        spent_micro_usd=reached.spent_micro_usd,
        reached_at=reached.reached_at,
    )


def _released(budget: Budget, event: Event[BudgetReleased]) -> Budget:
    released = event.payload
    return newest(
        budget,
        "reached_seq",
        event,
        reached_percent=0,
        spent_micro_usd=released.spent_micro_usd,
        reached_at=None,
    )


BUDGETS = Noun(
    table="budgets",
    view=Budget,
    key=("tenant_id", "name"),
    rules={
        BudgetChanged: _changed,
        BudgetRemoved: _removed,
        BudgetReached: _reached,
        BudgetReleased: _released,
    },
)
