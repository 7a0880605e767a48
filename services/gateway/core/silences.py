"""Silences as views, and which one an alert is silenced by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.silences import SilenceChanged, SilenceEnded
from services.gateway.core.noun import NEVER, Noun, newest

Row = Mapping[str, Any]
# By alert, job and project.
InForce = Mapping[tuple[str | None, str | None, str | None], Row]


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


def by_subject(silences: Iterable[Row]) -> InForce:
    """Of those in force with the same alert, job and project, the one that lasts longest."""
    return {
        (each["alert"], each["job_id"], each["project"]): each
        for each in sorted(silences, key=_length)
    }


def silence_of(silences: InForce, alert: str, job_id: str, project: str | None) -> Row | None:
    """The one that silences this alert for longest. None in a silence stands for every one."""
    subjects = product({None, alert}, {None, job_id}, {None, project})
    found = [silences[subject] for subject in subjects if subject in silences]
    return max(found, key=_length, default=None)


def _length(silence: Row) -> tuple[datetime, str]:
    return silence["ends_at"], silence["silence_id"]
