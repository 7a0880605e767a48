"""The secrets of specs that people see without them: stored, put back, or refused as hidden."""

from typing import Any

from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.redaction import HIDDEN, hidden_fields, redacted, restored
from drivetrain_schemas.studies import StudySpec
from services.gateway import queries
from services.gateway.context import Gateway
from services.gateway.problem import invalid, not_found


async def stored_spec(gateway: Gateway, tenant_id: str, job_id: str) -> dict[str, Any]:
    """As it was submitted, with its secrets: to submit it again, never to be shown.

    Raises Problem (404).
    """
    async with gateway.platform.database.connection() as connection:
        row = await queries.jobs.find(connection, tenant_id, job_id)
    if row is not None and row["spec"] is not None:
        spec: dict[str, Any] = row["spec"]
        return spec
    submission = gateway.submissions.get(tenant_id, job_id)
    if submission is None:
        raise not_found("specification of job", job_id)
    return submission.spec.model_dump(mode="json")


def with_secrets(spec: JobSpec, source: JobSpec) -> JobSpec:
    """The spec, with the source's values where they are hidden in it."""
    stored = source.model_dump(mode="json")
    given = spec.model_dump(mode="json")
    return JobSpec.model_validate(restored(given, redacted(stored), stored))


def refuse_hidden(spec: JobSpec | StudySpec) -> None:
    """Raises Problem (422) where a value is `***`, which is only shown instead of a secret."""
    for field in hidden_fields(spec.model_dump(mode="json")):
        message = f"its value is hidden ({HIDDEN})"
        raise invalid(f"spec.{field}", message, "write the value, or leave it out")
