"""Refused commands, found by the id of the command and its subject."""

from dataclasses import dataclass
from typing import Any

from drivetrain_schemas.checkpoints import CheckpointPinRejected
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobRequestRejected
from drivetrain_schemas.studies import StudyRequestRejected
from services.gateway.core.noun import Key, Noun


@dataclass(frozen=True, slots=True)
class Rejection:
    command_event_id: str
    subject_id: str
    seq: int
    reason: str
    detail: str
    errors: list[Any]


def _newest(rejection: Rejection, event: Event[Any]) -> Rejection:
    return max(rejection, _new(event), key=_seq)


def _seq(rejection: Rejection) -> int:
    return rejection.seq


def _new(event: Event[Any]) -> Rejection:
    payload = event.payload
    is_pin = isinstance(payload, CheckpointPinRejected)
    command_event_id, subject_id = _key_of(event)
    return Rejection(
        command_event_id,
        subject_id,
        seq=event.seq or 0,
        reason="no_such_checkpoint" if is_pin else str(payload.reason),
        detail=payload.detail,
        errors=[] if is_pin else [error.model_dump(mode="json") for error in payload.errors],
    )


def _key_of(event: Event[Any]) -> Key:
    payload = event.payload
    match payload:
        case JobRequestRejected():
            subject_id = payload.job_id
        case StudyRequestRejected():
            subject_id = payload.study_id
        case _:
            subject_id = payload.checkpoint_id
    return payload.command_event_id, subject_id


REJECTIONS = Noun(
    table="rejections",
    view=Rejection,
    key=("command_event_id", "subject_id"),
    key_of=_key_of,
    new=_new,
    rules=dict.fromkeys((JobRequestRejected, StudyRequestRejected, CheckpointPinRejected), _newest),
)
