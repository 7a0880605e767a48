"""Refused commands, found by the id of the command and its subject."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.budgets import BudgetRequestRejected
from drivetrain_schemas.checkpoints import CheckpointPinRejected
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobRequestRejected
from drivetrain_schemas.silences import SilenceRequestRejected
from drivetrain_schemas.studies import (
    StudyCancelRejected,
    StudyCommandRejected,
    StudyRequestRejected,
)
from services.gateway.core.noun import NEVER, Key, Noun, given, newest

_SUBJECTS: Mapping[type[Payload], str] = {
    JobRequestRejected: "job_id",
    StudyRequestRejected: "study_id",
    StudyCancelRejected: "study_id",
    StudyCommandRejected: "study_id",
    CheckpointPinRejected: "checkpoint_id",
    BudgetRequestRejected: "name",
    SilenceRequestRejected: "silence_id",
}


@dataclass(frozen=True, slots=True)
class Rejection:
    command_event_id: str
    subject_id: str
    seq: int = NEVER
    reason: str = "no_such_checkpoint"
    detail: str = ""
    errors: tuple[Any, ...] = ()


def _rejected(rejection: Rejection, event: Event[Any]) -> Rejection:
    known = type(event.payload).model_fields
    names = [name for name in ("detail", "reason", "errors") if name in known]
    return newest(rejection, "seq", event, **given(event, *names))


def _key_of(event: Event[Any]) -> Key | None:
    """None: the request did not even name its subject, so nobody waits for this answer."""
    payload = event.payload
    subject = getattr(payload, _SUBJECTS[type(payload)])
    return None if subject is None else (payload.command_event_id, subject)


REJECTIONS = Noun(
    table="rejections",
    view=Rejection,
    key=("command_event_id", "subject_id"),
    key_of=_key_of,
    rules=dict.fromkeys(_SUBJECTS, _rejected),
)
