"""A study and its trials."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from services.gateway.rest.models.commands import Refusal


class StudySummary(BaseModel):
    """`state` is submitted, rejected, running, paused, stopping, completed,
    cancelled, or failed.

    `failure` says why it failed, `ended_by` what ended a completed one. Trials that were stopped
    early have no value and are not counted as failed.
    """

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
    num_stopped: int = 0
    num_paused: int = 0
    best_number: int | None
    best_value: float | None
    failure: str | None
    is_cancelling: bool
    ended_by: str | None = None
    state_reason: str | None = None
    limits: dict[str, Any] | None = None
    max_parallel_trials: int | None = None
    started_at: datetime | None
    finished_at: datetime | None


class TrialFacts(BaseModel):
    """A trial; `state` is proposed, stopping, paused, stopped, completed or failed.

    `values` are of all objectives. A trial with `is_safe` false breaks the safety limit and cannot
    win; `safety` is its value of that metric. `rung`, `measured`, `verdict` and `threshold` are of
    the last rung at which it was judged; `parent` is the trial whose checkpoint it started from,
    and `why` says why it was proposed.
    """

    number: int
    job_id: str
    state: str
    job_state: str | None
    value: float | None
    values: list[float] | None = None
    is_safe: bool = True
    safety: float | None = None
    hyperparameters: dict[str, bool | int | float | str]
    step: int | None
    max_steps: int | None
    detail: str | None
    parent: int | None = None
    why: str | None = None
    is_external: bool = False
    request_id: str | None = None
    rung: int | None = None
    measured: float | None = None
    verdict: str | None = None
    threshold: float | None = None
    charged_micro_usd: int = 0
    proposed_at: datetime | None = None
    ended_at: datetime | None = None


class Trial(TrialFacts):
    """`rank` is 1 for the best; None without a value that counts."""

    rank: int | None
    is_best: bool


class Rung(BaseModel):
    """What was decided at this step; `value` is None where none was logged or it is not finite."""

    step: int
    value: float | None
    verdict: str
    threshold: float | None
    rank: int | None
    num_ranked: int | None
    reason: str


class JudgedTrial(TrialFacts):
    """A trial with the rungs at which it was judged, ascending."""

    rungs: list[Rung]


class TrialList(BaseModel):
    """Trials by number."""

    trials: list[JudgedTrial]
    next: str | None


class Study(StudySummary):
    """Trials in the order of their rank, then those that go on, then the newest; at most 10,000."""

    request_id: str | None
    spec: dict[str, Any] | None
    refusal: Refusal | None
    pareto: list[int] | None = None
    trials: list[Trial]


class StudyList(BaseModel):
    studies: list[StudySummary]
    next: str | None


class Suggestion(BaseModel):
    """`trial` is None where the search has not answered yet. `rungs`: the steps to report at."""

    request_id: str
    trial: JudgedTrial | None
    rungs: list[int]


class ShouldStop(BaseModel):
    """`rung` and `threshold` are of the last rung at which the trial was judged."""

    should_stop: bool
    reason: str
    rung: int | None
    threshold: float | None


class Reported(ShouldStop):
    """`is_confirmed`: judged, or no rung waited for this value; otherwise it was only sent."""

    is_confirmed: bool
