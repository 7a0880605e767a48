"""What is wrong with a run: alerts of its metrics, checkpoints that are not saved, warnings."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.checkpoints import CheckpointingFailed, CheckpointingRecovered
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.metrics import AlertCleared, AlertRaised, RunWarned
from services.gateway.core.noun import NEVER, Key, Noun, as_it_is, given, newest

NO_CHECKPOINTS = "no_checkpoints"
# What they tell is true after the end of their run, too.
LASTING = ("log_dropped", "not_finite", "rule", "samples_dropped", "script")


@dataclass(frozen=True, slots=True)
class Alert:
    """Active while `raised_seq` is above `cleared_seq`."""

    run_id: str
    alert: str
    job_id: str
    attempt: int
    raised_seq: int = NEVER
    cleared_seq: int = NEVER
    series: str | None = None
    step: int | None = None
    detail: str | None = None
    raised_at: datetime | None = None
    tenant_id: str | None = None
    cleared_at: datetime | None = None


def _raised(alert: Alert, event: Event[AlertRaised]) -> Alert:
    facts = given(event, "series", "step", "detail", "tenant_id")
    return newest(alert, "raised_seq", event, raised_at=event.occurred_at, **facts)


def _failed(alert: Alert, event: Event[CheckpointingFailed]) -> Alert:
    found = event.payload
    since = "" if found.last_step is None else f" since step {found.last_step:,}"
    facts = {"step": found.failed_step, "detail": f"no checkpoint{since}: {found.detail}"}
    facts["tenant_id"] = event.tenant_id
    return newest(alert, "raised_seq", event, raised_at=event.occurred_at, **facts)


def _cleared(alert: Alert, event: Event[Any]) -> Alert:
    return newest(alert, "cleared_seq", event, cleared_at=event.occurred_at)


def _key_of(event: Event[Any]) -> Key:
    payload = event.payload
    is_alert = isinstance(payload, AlertRaised | AlertCleared)
    return payload.run_id, payload.alert if is_alert else NO_CHECKPOINTS


ALERTS = Noun(
    table="alerts",
    view=Alert,
    key=("run_id", "alert"),
    key_of=_key_of,
    rules={
        AlertRaised: _raised,
        AlertCleared: _cleared,
        CheckpointingFailed: _failed,
        CheckpointingRecovered: _cleared,
    },
)


@dataclass(frozen=True, slots=True)
class Warned:
    """A misuse that a pod of the run has warned of; never changed."""

    run_id: str
    number: int
    job_id: str
    attempt: int
    warning: str
    detail: str


WARNINGS = Noun(
    table="warnings", view=Warned, key=("run_id", "number"), rules={RunWarned: as_it_is}
)
