"""Silences: alerts that nobody is to be called for, until a time.

A silence is of one alert, or of every one, of a job, of a project or of the whole tenant. There is
one for each such choice: its id follows from it, and setting it again changes its end and reason.
Silenced alerts are raised and shown as before; webhooks are not called for them. It ends by itself.
"""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import model_validator

from drivetrain_schemas.base import Misfit, Payload, Strict, UtcTime, event
from drivetrain_schemas.ids import JobId, SilenceId, TenantId, digest_id
from drivetrain_schemas.jobs import FieldError, Name
from drivetrain_schemas.metrics import AlertKind
from drivetrain_schemas.text import free_text
from drivetrain_schemas.topics import COMMANDS_SILENCES, EVENTS_SILENCES

MAX_SILENCES = 200  # of one tenant
DEFAULT_SILENCE = timedelta(hours=2)
MAX_SILENCE = timedelta(days=30)


class SilenceSpec(Strict):
    """Which alerts, until when, and why. Without an alert: every one. Without a job and a project:
    of the whole tenant.

    A job counts for the project that it is part of when its alert is raised.
    """

    alert: AlertKind | None = None
    job_id: JobId | None = None
    project: Name | None = None
    ends_at: UtcTime
    reason: Annotated[str, free_text(512)] = ""

    @model_validator(mode="after")
    def _has_one_subject(self) -> "SilenceSpec":
        if self.job_id and self.project:
            raise Misfit("job_id and project are given", fix="give one of them", field="project")
        return self


def silence_id_for(tenant_id: str, spec: SilenceSpec) -> str:
    """One silence for each choice of alerts."""
    parts = (spec.alert or "", spec.job_id or "", spec.project or "")
    return f"silence_{digest_id(tenant_id, *parts)}"


@event("silence.set", topic=COMMANDS_SILENCES, producer="any")
class SilenceSet(Payload):
    """Silence these alerts, or change the silence that there is of them."""

    tenant_id: TenantId
    spec: SilenceSpec


@event("silence.end", topic=COMMANDS_SILENCES, producer="any")
class SilenceEnd(Payload):
    """End this silence now."""

    tenant_id: TenantId
    silence_id: SilenceId


@event("silence_request.rejected", topic=EVENTS_SILENCES, producer="metrics")
class SilenceRequestRejected(Payload):
    """A command about a silence was refused; no silence was changed."""

    tenant_id: TenantId
    silence_id: str | None = None
    command_event_id: str
    reason: Literal[
        "invalid_spec", "no_such_silence", "too_many", "already_over", "too_long", "wrong_tenant"
    ]
    detail: str
    errors: tuple[FieldError, ...] = ()


class _OfSilence(Payload):
    tenant_id: TenantId
    silence_id: SilenceId
    spec: SilenceSpec

    @property
    def job_id(self) -> str | None:
        """The job in whose history it stands."""
        return self.spec.job_id


@event("silence.changed", topic=EVENTS_SILENCES, producer="metrics")
class SilenceChanged(_OfSilence):
    """The silence is in force until its `ends_at`; no event says that it is over by itself.

    `created_at`: since when it is in force without a break.
    """

    command_event_id: str
    created_at: UtcTime


@event("silence.ended", topic=EVENTS_SILENCES, producer="metrics")
class SilenceEnded(_OfSilence):
    """The silence was ended before its time."""

    ended_at: UtcTime
