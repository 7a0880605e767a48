"""Budgets: what may be spent, what is spent, and when it will be used up."""

from datetime import datetime

from pydantic import BaseModel


class Budget(BaseModel):
    """`spent_micro_usd` and what follows it are of this moment, and None where the cost service
    does not answer. `used_up_at`: if spending goes on as in the last seven days; None: not in this
    period. `reached_percent`: the highest level told in this period."""

    name: str
    limit_micro_usd: int
    period: str
    study_id: str | None
    job_id: str | None
    project: str | None
    warn_percents: list[int]
    at_limit: str
    reached_percent: int
    reached_at: datetime | None
    spent_micro_usd: int | None = None
    used_up_at: datetime | None = None
    period_ends_at: datetime | None = None


class BudgetList(BaseModel):
    budgets: list[Budget]
