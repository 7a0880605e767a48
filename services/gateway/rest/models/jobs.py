"""A job: its summary in lists, its attempts, and why it waits."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from services.gateway.rest.models.alerts import Alert
from services.gateway.rest.models.commands import Refusal


class Progress(BaseModel):
    """As the pods report it. `eta_seconds` is an estimate from the pace of this attempt."""

    step: int | None
    max_steps: int | None
    fraction: float | None
    epoch: int | None
    phase: str | None
    steps_per_second: float | None
    eta_seconds: float | None
    heard_at: datetime | None


class Holder(BaseModel):
    """`detail`: why the slots stay held, where the end of the job would not release them."""

    job_id: str
    num_slots: int
    detail: str | None = None


class Waiting(BaseModel):
    """Why a job waits: for its next run, or while that starts; from a closed list of reasons."""

    reason: str
    detail: str
    queue_position: int | None
    holders: list[Holder]
    not_before_at: datetime | None


class SavedBest(BaseModel):
    """The checkpoint with the best value of the job's metric."""

    value: float
    step: int
    checkpoint_id: str


class Best(BaseModel):
    """The best value of the job's metric so far; `value` is None until there is one.

    `is_saved`: a checkpoint with this value exists. If not, `saved` is the best of those that do.
    """

    name: str
    goal: str
    value: float | None
    step: int | None
    is_saved: bool = False
    saved: SavedBest | None = None


class MetricValue(BaseModel):
    """The best value so far of the job's metric; in a list by metric, that one's."""

    name: str
    value: float


class JobSummary(BaseModel):
    """`state` is submitted, rejected, or a state of the scheduler. `value` stands in lists only."""

    job_id: str
    tenant_id: str
    request_id: str | None
    name: str | None
    state: str
    is_cancelling: bool
    is_stopping: bool = False
    is_pausing: bool = False
    job_url: str
    attempt: int | None
    run_id: str | None
    pool: str | None
    devices: int | None
    priority: int | None
    progress: Progress | None
    waiting: Waiting | None
    refusal: Refusal | None
    charged_micro_usd: int
    study_id: str | None
    trial_number: int | None
    tags: list[str] = []
    project: str | None = None
    note: str = ""
    value: MetricValue | None = None
    submitted_at: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    detail: str | None


class Run(BaseModel):
    """One attempt. `unreachable`: why nothing is known of it, while its nodes do not answer.

    `silent_since`: the last heartbeat before its state became `suspect`.
    """

    run_id: str
    attempt: int
    state: str
    num_pods: int | None
    unreachable: str | None
    silent_since: datetime | None
    starting_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    signal: int | None
    rank: int | None
    detail: str | None


class Warned(BaseModel):
    """A misuse that the program was warned of, by the newest attempt that was; or `begins_with`."""

    attempt: int
    warning: str
    detail: str


class Job(JobSummary):
    """`hyperparameters`: those that the script names too, once a run has said what it uses."""

    spec: dict[str, Any] | None
    hyperparameters: dict[str, bool | int | float | str] = {}
    result: dict[str, Any] | None
    best: Best | None
    num_dropped_samples: int
    num_dropped_log_bytes: int
    runs: list[Run]
    alerts: list[Alert]
    warnings: list[Warned] = []


class JobList(BaseModel):
    """`next` is the `after` of the following page, None at the end.

    `num_searched`: where a search has looked at only so many jobs and found fewer than asked for.
    """

    jobs: list[JobSummary]
    next: str | None
    num_searched: int | None = None


class Explanation(BaseModel):
    """Why the job is in its state, in one sentence and by its parts."""

    job_id: str
    state: str
    text: str
    waiting: Waiting | None
    refusal: Refusal | None
    alerts: list[Alert]
    warnings: list[Warned] = []
