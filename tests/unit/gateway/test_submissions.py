"""What was just sent is known to the tenant that sent it, and to nobody else."""

from datetime import UTC, datetime

from drivetrain_schemas.jobs import JobSpec
from services.gateway.context import Submission, Submissions


def test_a_request_that_was_just_sent_is_its_tenant_s_only() -> None:
    spec = JobSpec.model_validate({"name": "digits", "command": ["true"]})
    sent = Submission("team-a", "job_a", "request", spec, datetime(2026, 1, 1, tzinfo=UTC))
    submissions = Submissions()
    submissions.remember(sent)
    assert submissions.get("team-a", "job_a") is sent
    assert submissions.get("team-b", "job_a") is None
    assert submissions.get("team-a", "job_b") is None
