"""A study and its trials."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from services.gateway.rest.models.commands import Refusal


class StudySummary(BaseModel):
    """`state` is submitted, rejected, running, completed, cancelled, or failed for `failure`."""

    study_id: str
    name: str | None
    state: str
    study_url: str
    sampler: str | None
    metric: str | None
    goal: str | None
    num_trials: int | None
    num_proposed: int
    num_completed: int
    num_failed: int
    best_number: int | None
    best_value: float | None
    failure: str | None
    is_cancelling: bool
    started_at: datetime | None
    finished_at: datetime | None


class Trial(BaseModel):
    """`rank` is 1 for the best; None without a value."""

    number: int
    job_id: str
    state: str
    job_state: str | None
    rank: int | None
    is_best: bool
    value: float | None
    hyperparameters: dict[str, bool | int | float | str]
    step: int | None
    max_steps: int | None
    detail: str | None


class Study(StudySummary):
    """Trials in the order of their rank, then those without a value by number; at most 10,000."""

    request_id: str | None
    spec: dict[str, Any] | None
    refusal: Refusal | None
    trials: list[Trial]


class StudyList(BaseModel):
    studies: list[StudySummary]
    next: str | None
