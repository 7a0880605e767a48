"""The responses of the API. Times are UTC, money is micro-dollars, steps are optimizer steps."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from services.gateway.core.parked import ParkedState
from services.gateway.rest.problems import FieldProblem


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
    """Why a job waits, from a closed list of reasons."""

    reason: str
    detail: str
    queue_position: int | None
    holders: list[Holder]
    not_before_at: datetime | None


class Refusal(BaseModel):
    """Why the request that would have made this was refused."""

    reason: str
    detail: str
    errors: list[FieldProblem]


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
    value: MetricValue | None = None
    submitted_at: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    detail: str | None


class Run(BaseModel):
    """One attempt. `unreachable`: why nothing is known of it, while its nodes do not answer."""

    run_id: str
    attempt: int
    state: str
    num_pods: int | None
    unreachable: str | None
    starting_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    signal: int | None
    rank: int | None
    detail: str | None


class Alert(BaseModel):
    """Something about a run that needs attention."""

    run_id: str
    attempt: int
    alert: str
    series: str | None
    step: int | None
    detail: str
    raised_at: datetime | None


class Warned(BaseModel):
    """A misuse that the program was warned of, by the newest attempt that was."""

    attempt: int
    warning: str
    detail: str


class Job(JobSummary):
    spec: dict[str, Any] | None
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


class TimelineItem(BaseModel):
    """One event as a sentence (`text`, `tone`) and as it was (`data`)."""

    event_id: str
    type: str
    occurred_at: datetime
    text: str
    tone: Literal["plain", "good", "warning", "bad"]
    detail: str
    data: dict[str, Any]


class Timeline(BaseModel):
    items: list[TimelineItem]
    next: str | None


class Explanation(BaseModel):
    """Why the job is in its state, in one sentence and by its parts."""

    job_id: str
    state: str
    text: str
    waiting: Waiting | None
    refusal: Refusal | None
    alerts: list[Alert]
    warnings: list[Warned] = []


class Series(BaseModel):
    """Equal lengths; `values` has the strings nan, inf and -inf, for which JSON has no number."""

    steps: list[int]
    values: list[float | Literal["nan", "inf", "-inf"]]
    num_samples: int
    is_downsampled: bool


class Samples(BaseModel):
    job_id: str
    series: dict[str, Series]
    num_series_left_out: int = 0


class SeriesSummary(BaseModel):
    """One series of a rank over all attempts; the last step and value are of the last attempt."""

    name: str
    num_samples: int
    first_step: int
    last_step: int
    last_value: float | Literal["nan", "inf", "-inf"]


class SeriesPage(BaseModel):
    """By name. `next` is the `after` of the following page; `num_series` counts all pages.

    `num_samples_left_out`: of more names than a job may have.
    """

    job_id: str
    series: list[SeriesSummary]
    next: str | None
    num_series: int
    num_samples_left_out: int


class ChartAttempt(BaseModel):
    """What an attempt logged of the series of a chart."""

    attempt: int
    first_step: int
    last_step: int


class Curve(BaseModel):
    """`steps` is an index into the chart's lists of steps, all lists are of that one's length.

    Each of `values` is a sample, or where there are `lows` and `highs` the mean of those from its
    step to before the next point. `not_finite` has the first step of each point with a NaN or an
    infinite sample; a point without finite samples is null. It begins at `from_step`: earlier
    points, of an earlier answer, stay.
    """

    steps: int
    from_step: int
    values: list[float | None]
    lows: list[float | None] | None
    highs: list[float | None] | None
    not_finite: list[int]


class Chart(BaseModel):
    """A point covers `width` steps, except in exact series. Whole, or what changed: `is_whole`.

    `next` is the `after` of the next request for the same series.
    """

    job_id: str
    width: int
    is_whole: bool
    next: str
    attempts: list[ChartAttempt]
    steps: list[list[int]]
    series: dict[str, Curve]


class AttemptTimes(BaseModel):
    """`times[i]`: when `steps[i]` was first reported, in seconds of the epoch; both ascend."""

    attempt: int
    steps: list[int]
    times: list[float]


class Times(BaseModel):
    job_id: str
    attempts: list[AttemptTimes]


class LogLine(BaseModel):
    position: int
    attempt: int
    rank: int
    number: int
    line: str


class LogPage(BaseModel):
    """`next` is the `after` of the following page."""

    job_id: str
    lines: list[LogLine]
    next: int
    num_lines: int
    num_dropped_bytes: int


class Checkpoint(BaseModel):
    """`state` is committed, rejected or deleted."""

    checkpoint_id: str
    job_id: str
    run_id: str
    attempt: int
    step: int
    epoch: int | None
    state: str
    is_latest: bool
    is_best: bool
    is_pinned: bool
    size_bytes: int | None
    num_shards: int | None
    metrics: dict[str, float]
    manifest_key: str | None
    committed_at: datetime | None
    detail: str | None
    restored_by_attempt: int | None


class CheckpointList(BaseModel):
    checkpoints: list[Checkpoint]


class Shard(BaseModel):
    key: str
    size_bytes: int
    sha256: str
    rank: int


class ShardList(BaseModel):
    checkpoint_id: str
    job_id: str
    step: int
    shards: list[Shard]


class File(BaseModel):
    """`mode`: its permissions, such as "644". `target`: of a symbolic link."""

    path: str
    size_bytes: int = 0
    mode: str = "777"
    modified_at: datetime | None = None
    sha256: str | None = None
    target: str | None = None


class JobFiles(BaseModel):
    """`checkpoint_id`: the files as of its step. Nothing was saved yet: no `saved_at`."""

    job_id: str
    checkpoint_id: str | None = None
    attempt: int | None = None
    saved_at: datetime | None = None
    files: list[File] = []
    size_bytes: int = 0
    num_left_out: int = 0
    left_out: list[str] = []


class Unpriced(BaseModel):
    """Slots in use that no price covers."""

    pool: str
    device_type: str


class Spend(BaseModel):
    """Charged for what was released, accruing for what is held now.

    `platform_micro_usd` is the platform's own cost, in none of the other figures: slots that were
    still held after their pods had ended. Slots listed in `unpriced` count as 0, because their
    price is not known.
    """

    charged_micro_usd: int
    accruing_micro_usd: int
    total_micro_usd: int
    platform_micro_usd: int = 0
    unpriced: list[Unpriced] = []


class JobCost(Spend):
    job_id: str


class CostOfJob(BaseModel):
    job_id: str
    name: str | None
    charged_micro_usd: int


class CostReport(BaseModel):
    """`items` are the jobs charged last, at most 500; the sum and `num_jobs` are of all.

    `spend` is None where the cost service did not answer; what is charged is always there.
    """

    by: Literal["job"]
    items: list[CostOfJob]
    num_jobs: int
    charged_micro_usd: int
    spend: Spend | None


class Estimate(BaseModel):
    price_id: str
    price_micro_usd_per_slot_hour: int
    estimated_micro_usd: int


class Slot(BaseModel):
    """One slot; `job_id` is None where it is free."""

    slot: int
    job_id: str | None
    name: str | None
    attempt: int | None
    granted_at: datetime | None


class Node(BaseModel):
    """`unschedulable_reason`: why nothing new is placed on it at the moment, such as a cordon."""

    node_id: str
    pool: str | None
    device_type: str | None
    num_slots: int
    num_free: int
    is_removed: bool
    is_spot: bool | None
    topology: str | None
    unschedulable_reason: str | None
    slots: list[Slot]


class NodeList(BaseModel):
    nodes: list[Node]


class FoundId(BaseModel):
    """`is_name`: the text is its name; else the text is the beginning of its id."""

    id: str
    name: str | None
    state: str | None
    is_name: bool


class IdList(BaseModel):
    """At most ten."""

    ids: list[FoundId]


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


class ShownBytes(BaseModel):
    """Bytes as received; `text` where they are printable, cut after 64 KiB."""

    size_bytes: int
    base64: str
    text: str | None
    is_cut: bool


class ParkedSummary(BaseModel):
    """A record that a service could not handle.

    `event_type` is empty where the record names no known type. `has_failed_again`: it was parked
    again after its last replay.
    """

    parked_id: str
    state: ParkedState
    service: str
    topic: str
    partition: int | None
    offset: int | None
    reason: str
    event_type: str
    detail: str
    size_bytes: int
    parked_at: datetime
    num_parkings: int
    replayed_at: datetime | None
    has_failed_again: bool
    decided_at: datetime | None
    decision_note: str


class Header(BaseModel):
    name: str
    value: ShownBytes


class ParkedRecord(ParkedSummary):
    """`is_omitted`: too large to be kept; read it from its topic, partition and offset."""

    is_omitted: bool
    key: ShownBytes | None
    value: ShownBytes | None
    headers: list[Header]


class ParkedList(BaseModel):
    records: list[ParkedSummary]
    next: str | None


class ParkedGroup(BaseModel):
    """How many records of one state have these in common."""

    service: str
    topic: str
    reason: str
    event_type: str
    num_records: int


class ParkedGroups(BaseModel):
    groups: list[ParkedGroup]


class ParkedDecision(BaseModel):
    """The result of one request. `next`: there is more; send it as `after`.

    `num_skipped` records cannot be replayed: too large to be kept, or of an unknown topic.
    """

    num_records: int
    num_skipped: int
    next: str | None
    is_confirmed: bool


class Code(BaseModel):
    """The value of a spec's `code`: {uri, sha256}."""

    uri: str
    sha256: str
    size_bytes: int
    is_new: bool


class LoginLink(BaseModel):
    """Opens the pages once, until `expires_at`."""

    url: str
    expires_at: datetime


class Accepted(BaseModel):
    """`is_confirmed`: the service that decides has accepted it; otherwise it was only sent."""

    is_confirmed: bool
