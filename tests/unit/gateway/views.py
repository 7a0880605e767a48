"""Views after events of one job and one study."""

from datetime import timedelta
from functools import reduce
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.jobs import JobQueued, TrialOf
from services.gateway.core.noun import Noun
from tests.handlers.gateway.story import START, TENANT, spec

JOB = job_id_for(TENANT, "a")
STUDY = study_id_for(TENANT, "a")


def told(payload: Payload, seq: int | None = 1) -> Event[Any]:
    return Event(f"event-{seq}", "/x", START + timedelta(seconds=seq or 0), TENANT, payload, seq)


def view(noun: Noun, *payloads: Payload) -> Any:
    """After events that are numbered from 1."""
    events = [told(payload, seq) for seq, payload in enumerate(payloads, 1)]
    return reduce(noun.apply, events, None)


def shown(found: Any, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(found, name) for name in names)


def queued(trial: TrialOf | None = None, **changes: Any) -> JobQueued:
    job = spec("a", **changes)
    return JobQueued(job_id=JOB, request_id="a", spec=job, trial=trial, queued_at=START)
