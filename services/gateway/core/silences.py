"""Silences as views, and which one an alert is silenced by."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.silences import SilenceChanged, SilenceEnded
from services.gateway.core.noun import NEVER, Noun, newest


@dataclass(frozen=True, slots=True)
class Silence:
    """In force while `changed_seq` is above `ended_seq`, and until `ends_at`."""

    silence_id: str
    tenant_id: str
    changed_seq: int = NEVER
    alert: str | None = None
    job_id: str | None = None
    project: str | None = None
    ends_at: datetime | None = None
    reason: str = ""
    created_at: datetime | None = None
    command_event_id: str = ""
    ended_seq: int = NEVER


def _changed(silence: Silence, event: Event[SilenceChanged]) -> Silence:
    spec = event.payload.spec
    return newest(
        silence,
        "changed_seq",
        event,
        alert=None if spec.alert is None else spec.alert.value,
        job_id=spec.job_id,
        project=spec.project,
        ends_at=spec.ends_at,
        reason=spec.reason,
        created_at=event.payload.created_at,
        command_event_id=event.payload.command_event_id,
    )


def _ended(silence: Silence, event: Event[SilenceEnded]) -> Silence:
    return newest(silence, "ended_seq", event)


SILENCES = Noun(
    table="silences",
    view=Silence,
    key=("silence_id",),
    rules={SilenceChanged: _changed, SilenceEnded: _ended},
)


def silence_of(
    silences: Iterable[dict[str, Any]], alert: str, job_id: str, project: str | None
) -> dict[str, Any] | None:
    """Of those in force, the one that silences this alert for longest."""
    found = [
        each
        for each in silences
        if each["alert"] in (None, alert)
        and each["job_id"] in (None, job_id)
        and each["project"] in (None, project)
    ]
    return max(found, key=lambda each: (each["ends_at"], each["silence_id"]), default=None)
