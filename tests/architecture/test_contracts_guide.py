"""What the guide and the examples for other systems say is what the platform reads."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from drivetrain_schemas.access import ACCESS, CLIENT
from drivetrain_schemas.envelope import MAX_EVENT_BYTES, InvalidReason, parse
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobRequestRejected, JobSpec, JobSubmit, RejectionReason
from drivetrain_schemas.specs import MAX_SPEC_BYTES
from services.runtime.decoding import MAX_HEADERS
from services.scheduler import early_commands
from services.standalone.kafka import TRANSACTION_TIMEOUT_MS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "03-submit-by-event"
GUIDE = (ROOT / "docs" / "guides" / "submit-by-event.md").read_text()


def blocks() -> list[Any]:
    return [json.loads(text) for text in re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)]


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("submit_by_event", EXAMPLE / "submit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_payload_and_the_structured_event_of_the_guide_are_read() -> None:
    payload, structured, rejected = blocks()
    assert JobSubmit.model_validate(payload, extra="forbid").spec.resources.devices == 2
    headers = [("content-type", b"application/cloudevents+json")]
    assert isinstance(parse(headers, json.dumps(structured).encode()).payload, JobSubmit)
    assert JobRequestRejected.model_validate(rejected).reason is RejectionReason.INVALID_SPEC


def test_the_guides_ids_are_the_platforms() -> None:
    for tenant in ("default", "vision"):
        assert job_id_for(tenant, "nightly-2026-01-31") in GUIDE


def test_the_guide_explains_every_reason() -> None:
    for reason in (*RejectionReason, *InvalidReason):
        assert f"`{reason}`" in GUIDE, reason


def test_the_examples_job_is_a_good_spec() -> None:
    assert JobSpec.model_validate_json((EXAMPLE / "job.json").read_text()).name == "hello-by-event"


def test_the_python_example_makes_the_platforms_ids() -> None:
    module = example()
    for request_id in ("nightly-2026-01-31", "a", "with space, comma"):
        assert module.job_id_of("default", request_id) == job_id_for("default", request_id)


def test_the_guides_limits_are_the_platforms() -> None:
    assert f"at most {MAX_HEADERS}, and 1 MB" in GUIDE
    assert f"set\n`transaction.timeout.ms` to {TRANSACTION_TIMEOUT_MS:,} or less" in GUIDE
    assert f"keeps such a cancel for {early_commands.KEPT.seconds} s" in GUIDE
    assert f"more than {MAX_SPEC_BYTES // 1024} KiB as JSON" in GUIDE
    assert f"at most {MAX_EVENT_BYTES // 1024} KiB" in GUIDE


def test_the_guides_credential_is_that_of_a_client() -> None:
    assert {topic.name for topic in ACCESS[CLIENT].writes} == {"commands.jobs", "commands.studies"}
    assert all(topic.name.startswith("events.") for topic in ACCESS[CLIENT].reads)
