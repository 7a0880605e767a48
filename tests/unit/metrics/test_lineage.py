"""What is told of a job to lineage endpoints."""

from typing import Any

import pytest

from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.jobs import JobQueued, TrialOf
from services.metrics.core.lineage import Endpoint, lineage_job
from tests.handlers.gateway.story import START, spec

STUDY = study_id_for("team", "s")
CODE = {"code_uri": "store:code/default/a.tar.gz", "code_sha256": "a" * 64}
SOURCE = {"commit": "b" * 40, "branch": "main"}


def told(name: str, trial: TrialOf | None = None, **changes: Any) -> dict[str, Any]:
    job_id = job_id_for("team", name)
    job = spec(name, **changes)
    queued = JobQueued(job_id=job_id, request_id=name, spec=job, trial=trial, queued_at=START)
    found = lineage_job("team", queued)
    names = ("code_uri", "code_sha256", "commit", "branch", "study_id", "study_name", "data")
    return {name: getattr(found, name) for name in names if getattr(found, name) is not None}


@pytest.mark.parametrize(
    ("job", "want"),
    [
        ({}, CODE),
        ({"code": None, "image": "registry/a"}, {}),
        ({"code": None, "image": "registry/a", "source": SOURCE}, SOURCE),
        (
            {"trial": TrialOf(study_id=STUDY, number=3)},
            {**CODE, "study_id": STUDY, "study_name": "search"},
        ),
    ],
)
def test_a_job_is_told_with_its_code_commit_and_study(
    job: dict[str, Any], want: dict[str, Any]
) -> None:
    assert told("search-3", **job) == want


def test_a_password_in_an_address_is_not_told() -> None:
    assert "hush-hush" not in told("a", data="https://me:hush-hush@host/x")["data"]


def test_a_queue_has_a_name_that_no_webhook_has() -> None:
    assert Endpoint("marquez", "https://host").queue == "lineage:marquez"
