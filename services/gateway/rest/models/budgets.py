"""Budgets: what may be spent, what is spent, and when it will be used up."""

from datetime import datetime

from pydantic import BaseModel


class Budget(BaseModel):
    """`spent_micro_usd` and what follows it are of this moment, and None where the cost service
    does not answer. `used_up_at`: when the limit was reached or likely will be, at the rate of the
    last week or of what runs now; `used_up_earliest`, `used_up_latest`: at the highest and lowest
    of the rates of the week, since yesterday and now. None: not in this period. `reached_percent`:
    the highest level told in this period, which the spend reached at `reached_at`."""

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
    used_up_earliest: datetime | None = None
    used_up_latest: datetime | None = None
    period_ends_at: datetime | None = None


class BudgetList(BaseModel):
    budgets: list[Budget]
