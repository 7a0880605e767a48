"""Budgets: what a tenant, a project, a study or a job may spend, and what happens when it has.

A budget has a name within its tenant. Spend is what was charged in the period plus what the slots
that are held now would be charged; the cost service compares it with the limit about once a second.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Payload, Strict, UtcTime, event
from drivetrain_schemas.ids import JobId, StudyId, TenantId
from drivetrain_schemas.jobs import Count, FieldError, Name
from drivetrain_schemas.topics import COMMANDS_BUDGETS, EVENTS_BUDGETS
from drivetrain_schemas.units import MicroUsd

MAX_BUDGETS = 100  # of one tenant
MAX_LIMIT_MICRO_USD = 10**15  # a billion dollars


class BudgetPeriod(StrEnum):
    """The days and months of UTC; `total` never begins again."""

    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


class AtLimit(StrEnum):
    """`warn` only tells; `hold` starts no more runs; `stop` stops the running jobs as well."""

    WARN = "warn"
    HOLD = "hold"
    STOP = "stop"


class BudgetSpec(Strict):
    """What may be spent in a period: by the whole tenant, or by one project, study or job of it.

    A job counts with all that it has spent for the project that it is part of now.
    """

    limit_micro_usd: Annotated[Count, Field(ge=1, le=MAX_LIMIT_MICRO_USD)]
    period: BudgetPeriod = BudgetPeriod.MONTH
    study_id: StudyId | None = None
    job_id: JobId | None = None
    project: Name | None = None
    warn_percents: Annotated[
        tuple[Annotated[Count, Field(ge=1, le=99)], ...], Field(max_length=5)
    ] = (80,)
    at_limit: AtLimit = AtLimit.WARN

    @model_validator(mode="after")
    def _has_one_subject(self) -> "BudgetSpec":
        given = [name for name in ("study_id", "job_id", "project") if getattr(self, name)]
        if len(given) > 1:
            message = f"{given[0]} and {given[1]} are given"
            raise Misfit(message, fix="give one of them", field=given[1])
        return self


@event("budget.set", topic=COMMANDS_BUDGETS, producer="any")
class BudgetSet(Payload):
    """Create this budget, or change the one of this name."""

    tenant_id: TenantId
    name: Name
    spec: BudgetSpec


@event("budget.remove", topic=COMMANDS_BUDGETS, producer="any")
class BudgetRemove(Payload):
    """Remove this budget, and what it holds back with it."""

    tenant_id: TenantId
    name: Name


@event("budget_request.rejected", topic=EVENTS_BUDGETS, producer="cost")
class BudgetRequestRejected(Payload):
    """A command about a budget was refused; no budget was changed."""

    tenant_id: TenantId
    name: str | None = None
    command_event_id: str
    reason: Literal["invalid_spec", "no_such_budget", "too_many", "already_spent", "wrong_tenant"]
    detail: str
    errors: tuple[FieldError, ...] = ()


class _OfBudget(Payload):
    tenant_id: TenantId
    name: Name
    version: Annotated[int, Field(ge=1)]


@event("budget.changed", topic=EVENTS_BUDGETS, producer="cost")
class BudgetChanged(_OfBudget):
    """The budget is in force with this spec. `version` counts its changes."""

    spec: BudgetSpec
    changed_at: UtcTime


@event("budget.removed", topic=EVENTS_BUDGETS, producer="cost")
class BudgetRemoved(_OfBudget):
    """The budget exists no more."""

    removed_at: UtcTime


@event("budget.reached", topic=EVENTS_BUDGETS, producer="cost")
class BudgetReached(_OfBudget):
    """The spend of a period has reached this part of the limit: at `reached_at`, by the charges.

    At 100 percent `action` is the budget's `at_limit`: until `budget.released`, the scheduler
    starts no run of the subject where it is `hold` or `stop`. Below, it is `warn`.
    """

    percent: Annotated[int, Field(ge=1, le=100)]
    action: AtLimit
    spent_micro_usd: MicroUsd
    spec: BudgetSpec
    period_starts_at: UtcTime | None = None
    reached_at: UtcTime


@event("budget.released", topic=EVENTS_BUDGETS, producer="cost")
class BudgetReleased(_OfBudget):
    """The spend is below the limit again: a new period has begun, or the budget was changed."""

    reason: Literal["new_period", "changed", "corrected"]
    spent_micro_usd: MicroUsd
    released_at: UtcTime
