"""Samples and logs as they are sent: batches in columns, unique by (run, rank, session, batch)."""

import math
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from drivetrain_schemas.base import Misfit, Payload, UtcTime, Value, event
from drivetrain_schemas.ids import JobId, RunId, StudyId, TenantId
from drivetrain_schemas.jobs import MetricName
from drivetrain_schemas.reports import WarningDetail, WarningKind
from drivetrain_schemas.text import AS_PRINTED
from drivetrain_schemas.topics import EVENTS_ALERTS, LOGS, METRICS
from drivetrain_schemas.units import Attempt, Bytes, Fence, Ordinal, Rank, Step

# JSON has no NaN and no infinity; a diverged loss must still arrive.
SampleValue = float | Literal["nan", "inf", "-inf"]
_NOT_FINITE = ("nan", "inf", "-inf")
Session = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,32}$")]


def _are_samples(values: Any) -> Any:
    # Not a union: pydantic reports two errors for each bad value of a union, and batches are long.
    if not isinstance(values, list | tuple):
        raise Misfit("is not a list", fix="write a list")
    for index, value in enumerate(values):
        is_number = type(value) is float or type(value) is int
        if not (math.isfinite(value) if is_number else value in _NOT_FINITE):
            raise Misfit(
                f"entry {index} is not a sample",
                fix='write a finite number, "nan", "inf" or "-inf"',
            )
    return tuple(values)


class Column(Value):
    """Samples of one series: `steps` and `values` have equal length."""

    steps: Annotated[tuple[Step, ...], Field(max_length=100_000)]
    values: Annotated[
        tuple[SampleValue, ...],
        PlainValidator(_are_samples),
        # Without this pydantic warns that the serialized value has the wrong type.
        PlainSerializer(list, return_type=list[Any]),
        WithJsonSchema(
            {
                "type": "array",
                "items": {"anyOf": [{"type": "number"}, {"enum": list(_NOT_FINITE)}]},
            }
        ),
    ]

    @model_validator(mode="after")
    def _of_equal_length(self) -> "Column":
        if len(self.steps) != len(self.values):
            raise Misfit("differs from steps in length", fix="give as many", field="values")
        return self


class _Batch(Payload):
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    rank: Rank
    session: Session
    batch: Ordinal
    sent_at: UtcTime


class LaterRun(Value):
    """The run of the same job whose pod sends a batch of an earlier run again."""

    attempt: Attempt
    fence: Fence


@event("samples.recorded", topic=METRICS, producer="pod")
class SamplesRecorded(_Batch):
    """Samples of several series of one rank, in the order they were logged.

    `resent_by`: of a batch that an earlier run left in a checkpoint, the run that resumed from it
    and sends the batch, with its own token. Without it the sender is the run that is named.
    """

    columns: Annotated[dict[MetricName, Column], Field(min_length=1, max_length=1000)]
    resent_by: LaterRun | None = None


@event("logs.written", topic=LOGS, producer="pod")
class LogsWritten(_Batch):
    """Whole lines of one rank's output; `num_dropped_bytes`: left out by the rate limit."""

    stream: Literal["output"] = "output"
    first_line: Ordinal
    lines: tuple[Annotated[str, StringConstraints(max_length=16_384), AS_PRINTED], ...]
    num_dropped_bytes: Bytes = 0


class AlertKind(StrEnum):
    """All alerts about a run; each can be silenced. `checkpointing.failed` is `no_checkpoints`."""

    NOT_FINITE = "not_finite"
    STALLED = "stalled"
    SAMPLES_DROPPED = "samples_dropped"
    LOG_DROPPED = "log_dropped"
    DIVERGING = "diverging"
    STRAGGLER = "straggler"
    LOW_UTILISATION = "low_utilisation"
    SLOWER = "slower"
    NO_CHECKPOINTS = "no_checkpoints"
    RULE = "rule"
    SCRIPT = "script"


@event("alert.raised", topic=EVENTS_ALERTS, producer="metrics")
class AlertRaised(Payload):
    """Something about a run needs attention; nothing is stopped because of it.

    `value` has passed `threshold`, where the alert is about a figure.
    """

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    alert: AlertKind
    series: str | None = None
    step: Step | None = None
    value: float | None = None
    threshold: float | None = None
    detail: str


@event("alert.cleared", topic=EVENTS_ALERTS, producer="metrics")
class AlertCleared(Payload):
    """The condition of an alert has ended, or its run has; for all series that it is about."""

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    alert: AlertKind
    detail: str


@event("run.warned", topic=EVENTS_ALERTS, producer="metrics")
class RunWarned(Payload):
    """A pod has warned of a misuse, or of none (`begins_with`). No run has more than 20."""

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    number: Annotated[int, Field(ge=1)]
    warning: WarningKind
    detail: WarningDetail


@event("trial.measured", topic=EVENTS_ALERTS, producer="metrics")
class TrialMeasured(Payload):
    """The trial's run has reached a step at which the search judges it: once per trial and rung.

    `step` is the rung. `value` is that of the job's metric at `value_step`: its highest step up to
    the rung, else the first one after it. No value: none was logged, or it is not finite.
    """

    study_id: StudyId
    number: Annotated[int, Field(ge=0)]
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    step: Step
    value: float | None = None
    value_step: Step | None = None
