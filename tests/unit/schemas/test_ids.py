"""Ids: vectors that other languages can check their own code with."""

import pytest
from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas import ids

# Also in docs/guides/submit-by-event.md and in the examples.
JOB_ID = "job_nz2ce2vxgumoknvrlqtycemwmx"


def test_the_jobs_id_follows_from_tenant_and_request() -> None:
    assert ids.job_id_for("default", "nightly-2026-01-31") == JOB_ID
    assert ids.job_id_for("vision", "nightly-2026-01-31") == "job_sv6m4v4ov4vu5ur36lu2tsizdl"
    assert ids.job_id_for("default", "Größe") == "job_pa5i77q6hz7yg5t4bbulsz6zq6"


def test_a_study_and_a_job_of_one_request_share_all_but_the_prefix() -> None:
    assert ids.study_id_for("default", "nightly-2026-01-31") == "study_" + JOB_ID[4:]


def test_what_a_job_owns_is_named_after_it() -> None:
    assert ids.run_id_for(JOB_ID, 2) == f"run_{JOB_ID[4:]}_2"
    assert ids.allocation_id_for(JOB_ID, 2) == f"alloc_{JOB_ID[4:]}_2"
    assert ids.pod_id_for(JOB_ID, 2, 0) == f"pod_{JOB_ID[4:]}_2_0"


def test_tenant_and_request_cannot_be_shifted_into_each_other() -> None:
    assert ids.job_id_for("a", "bc") != ids.job_id_for("ab", "c")


def test_ids_of_content_differ_with_their_parts() -> None:
    assert ids.checkpoint_id_for("checkpoints/a/manifest.json").startswith("ckpt_")
    one = ids.charge_id_for("alloc_a_1", "price-1")
    assert one != ids.charge_id_for("alloc_a_1", "price-2")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ids.JobId, JOB_ID),
        (ids.RunId, ids.run_id_for(JOB_ID, 1)),
        (ids.AllocationId, ids.allocation_id_for(JOB_ID, 999_999)),
        (ids.PodId, ids.pod_id_for(JOB_ID, 1, 0)),
        (ids.StudyId, ids.study_id_for("default", "a")),
        (ids.CheckpointId, ids.checkpoint_id_for("key")),
        (ids.ChargeId, ids.charge_id_for("alloc", "price")),
        (ids.NodeId, "gpu-1.example.org"),
        (ids.TenantId, "team_vision-2"),
        (ids.RequestId, "a"),
        (ids.RequestId, "night run 7/12 (retry) " + "x" * 105),
    ],
)
def test_made_ids_have_their_form(kind: object, text: str) -> None:
    assert TypeAdapter(kind).validate_python(text) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ids.JobId, "job_"),
        (ids.JobId, JOB_ID.upper()),
        (ids.JobId, JOB_ID + "a"),
        (ids.JobId, JOB_ID + "\n"),
        (ids.JobId, JOB_ID[:-1] + "1"),
        (ids.JobId, ids.study_id_for("default", "a")),
        (ids.RunId, ids.run_id_for(JOB_ID, 0)),
        (ids.RunId, ids.run_id_for(JOB_ID, 1_000_000)),
        (ids.TenantId, ""),
        (ids.TenantId, "-a"),
        (ids.TenantId, "A"),
        (ids.TenantId, "a" * 64),
        (ids.TenantId, "a/b"),
        (ids.RequestId, ""),
        (ids.RequestId, " a"),
        (ids.RequestId, "a "),
        (ids.RequestId, "a\tb"),
        (ids.RequestId, "a\nb"),
        (ids.RequestId, "größe"),
        (ids.RequestId, "a" * 129),
        (ids.RequestId, 7),
    ],
)
def test_other_texts_are_no_ids(kind: object, text: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(text)
