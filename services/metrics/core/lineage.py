"""What is told to lineage endpoints, to whom, and when a delivery is tried again or given up."""

from dataclasses import dataclass
from typing import Literal

from drivetrain_schemas.jobs import JobQueued
from drivetrain_schemas.openlineage import LineageJob
from drivetrain_schemas.redaction import redacted

Outcome = Literal["sent", "failed", "refused", "given_up"]

FIRST_WAIT_SECONDS = 2.0
# So long after an endpoint is back it gets what waited, at most.
MAX_WAIT_SECONDS = 60.0
MAX_AGE_SECONDS = 7 * 86_400.0
# Answers about this one event: another try will hardly help, but who is in between may be wrong.
_ABOUT_THE_EVENT = frozenset({400, 413, 415, 422})
MAX_TRIES_OF_REFUSED = 4


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service that takes OpenLineage events. `tenants`: all where empty."""

    name: str
    url: str
    key: str = ""
    tenants: frozenset[str] = frozenset()

    @property
    def queue(self) -> str:
        """Its name in the table of deliveries, which no webhook has."""
        return f"lineage:{self.name}"


def outcome_of(status: int | None, num_tries: int, age_seconds: float) -> Outcome:
    """Of one try. `status`: of the answer, None without one."""
    if status is not None and 200 <= status < 300:
        return "sent"
    if age_seconds > MAX_AGE_SECONDS:
        return "given_up"
    if status in _ABOUT_THE_EVENT and num_tries >= MAX_TRIES_OF_REFUSED:
        return "refused"
    return "failed"


def wait_seconds(num_tries: int) -> float:
    """How long to wait after so many tries that failed."""
    return min(FIRST_WAIT_SECONDS * 2.0 ** min(num_tries - 1, 10), MAX_WAIT_SECONDS)


def lineage_job(tenant_id: str, queued: JobQueued) -> LineageJob:
    spec, trial, code, source = queued.spec, queued.trial, queued.spec.code, queued.spec.source
    # Addresses may hold a password or a signature.
    return LineageJob(
        tenant_id=tenant_id,
        job_id=queued.job_id,
        name=spec.name,
        data=redacted(spec.data),
        code_uri=redacted(code.uri) if code else None,
        code_sha256=code.sha256 if code else None,
        commit=source.commit if source else None,
        branch=source.branch if source else None,
        study_id=trial.study_id if trial else None,
        # The name of a trial's job is that of its study with the trial's number.
        study_name=spec.name.removesuffix(f"-{trial.number}") if trial else None,
    )
