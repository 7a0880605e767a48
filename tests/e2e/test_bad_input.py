"""Bad input to every interface: a clear error that names the field, and nothing stops."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from drivetrain_schemas.ids import job_id_for
from services.gateway.core.bytes_shown import MAX_SHOWN_BYTES
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.variants import variants
from tests.waiting import wait_until

GOOD: dict[str, Any] = {"name": "good", "command": ["true"], "resources": {"devices": 1}}

BAD_SPECS = [
    pytest.param({"colour": "red"}, "colour", id="an unknown field"),
    pytest.param({"max_steps": "many"}, "max_steps", id="a wrong type"),
    pytest.param({"max_steps": -1}, "max_steps", id="a negative number"),
    pytest.param({"max_steps": 10**30}, "max_steps", id="an absurd number"),
    pytest.param({"resources": {"devices": 0}}, "resources.devices", id="no device"),
    pytest.param({"resources": {"devices": 1000}}, "devices", id="more devices than the pool has"),
    pytest.param({"command": None}, "command", id="no command"),
    pytest.param({"command": "python train.py"}, "code", id="a script without code"),
    pytest.param({"name": "n" * 100}, "name", id="a name too long"),
    pytest.param({"hyperparameters": {"a": [1]}}, "hyperparameters.a", id="a list for a scalar"),
]

DUPLICATE_KEYS = b'{"spec": {"name": "a", "name": "b"}}'
NOT_A_NUMBER = b'{"spec": {"hyperparameters": {"a": NaN}}}'
DEEP_NESTING = b'{"spec":' + b'{"a":' * 500 + b"1" + b"}" * 501

BAD_BODIES = [
    pytest.param(DUPLICATE_KEYS, "twice", id="duplicate keys"),
    pytest.param(NOT_A_NUMBER, "NaN", id="NaN"),
    pytest.param(DEEP_NESTING, "nested", id="deep nesting"),
    pytest.param(b"{not json", "JSON", id="not JSON"),
]

BAD_FILES = [
    pytest.param("name: a\nname: b\n", "occurs twice", id="duplicate keys"),
    pytest.param("hyperparameters: {a: .nan}\n", "not a finite number", id="NaN"),
    pytest.param("a: " + "[" * 500 + "]" * 500, "nested", id="deep nesting"),
    pytest.param("{not yaml", "not YAML", id="not YAML"),
]


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    spec = {**GOOD, **changes}
    return {name: value for name, value in spec.items() if value is not None}


@pytest.mark.parametrize(("changes", "field"), variants(BAD_SPECS))
def test_rest_names_the_field_and_the_fix(
    platform: StandalonePlatform, changes: dict[str, Any], field: str
) -> None:
    with platform.client() as client:
        answer = client.post("/v1/jobs", json={"spec": changed(changes)})
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem = answer.json()
    named = [error["field"] for error in problem.get("errors", [])]
    assert any(field in name for name in named), problem
    assert all(error["message"] for error in problem["errors"])


@pytest.mark.parametrize(("body", "word"), variants(BAD_BODIES))
def test_rest_refuses_json_that_could_be_read_in_two_ways(
    platform: StandalonePlatform, body: bytes, word: str
) -> None:
    with platform.client() as client:
        answer = client.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert word in answer.text


@pytest.mark.parametrize(("changes", "field"), variants(BAD_SPECS))
def test_the_command_line_names_the_field(
    platform: StandalonePlatform, tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(changed(changes)))  # JSON is YAML
    process = cli(platform, "job", "submit", str(file))
    assert process.returncode in (2, 5), process.stderr
    assert field.rpartition(".")[2] in process.stderr


@pytest.mark.parametrize(("text", "word"), variants(BAD_FILES))
def test_the_command_line_refuses_yaml_that_could_be_read_in_two_ways(
    platform: StandalonePlatform, tmp_path: Path, text: str, word: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    process = cli(platform, "job", "submit", str(file))
    assert process.returncode == 2, process.stderr
    assert word in process.stderr


def test_the_command_line_refuses_a_megabyte_of_yaml(
    platform: StandalonePlatform, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ntags:\n" + "- aaaaaaaaaaaaaaaa\n" * 70_000)
    process = cli(platform, "job", "submit", str(file))
    assert process.returncode == 2
    assert "MiB" in process.stderr or "bytes" in process.stderr


def test_rest_refuses_a_megabyte(platform: StandalonePlatform) -> None:
    with platform.client() as client:
        answer = client.post("/v1/jobs", content=b" " * 2_000_000)
    assert answer.status_code == 413


@pytest.mark.parametrize(("changes", "field"), variants(BAD_SPECS))
def test_a_refused_event_gets_a_rejection(
    platform: StandalonePlatform, changes: dict[str, Any], field: str
) -> None:
    request_id = f"bad-{uuid.uuid4().hex}"
    value = json.dumps({"request_id": request_id, "spec": changed(changes)}).encode()
    key = job_id_for("default", request_id)
    event_id = asyncio.run(send(platform, [(headers(), value)], key))[0]
    rejected = asyncio.run(answer_to(platform, event_id))
    assert rejected["reason"] in ("invalid_spec", "more_devices_than_pool")
    assert rejected["job_id"] == job_id_for("default", request_id)
    assert field in json.dumps(rejected["errors"]) + rejected["detail"]


def test_a_request_id_used_with_another_payload_changes_no_job(
    platform: StandalonePlatform,
) -> None:
    request_id = f"twice-{uuid.uuid4().hex}"
    first = {"request_id": request_id, "spec": GOOD}
    with platform.client() as client:
        assert client.post("/v1/jobs", json=first).status_code in (201, 202)
        other = client.post(
            "/v1/jobs", json={"request_id": request_id, "spec": {**GOOD, "command": ["false"]}}
        )
    assert other.status_code == 409
    assert other.json()["code"] == "id_conflict"
    job = TrainingJob(platform, job_id_for("default", request_id))
    assert job.wait_final()["spec"]["command"] == ["true"]


UNREADABLE = [
    pytest.param({}, b"\xff\xfe not json", "not_json", id="not JSON"),
    pytest.param({}, DUPLICATE_KEYS, "not_json", id="duplicate keys"),
    pytest.param({}, NOT_A_NUMBER, "not_json", id="NaN"),
    pytest.param({}, DEEP_NESTING, "not_json", id="deep nesting"),
    pytest.param({"content-type": b"text/csv"}, b"a,b", "content_type", id="another content type"),
    pytest.param({"ce_id": None}, b"{}", "missing_attribute", id="a missing attribute"),
    pytest.param({"ce_type": b"job.polish"}, b"{}", "unknown_type", id="an unknown type"),
    pytest.param(
        {"ce_dataschema": b"urn:drivetrain:schema:job.submit:99"}, b"{}", "unknown_version",
        id="a version from the future",
    ),
    pytest.param({}, b"", "empty", id="an empty value"),
    pytest.param({}, b'"' + b"x" * 300 * 1024 + b'"', "too_large", id="300 KiB"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "value", "reason"), UNREADABLE)
def test_an_unreadable_event_is_parked_with_its_bytes_and_shown(
    platform: StandalonePlatform, changes: dict[str, bytes | None], value: bytes, reason: str
) -> None:
    mark = uuid.uuid4().hex
    changes = {**changes, "x-mark": mark.encode()}
    if "ce_id" not in changes:
        changes["ce_id"] = mark.encode()
    asyncio.run(send(platform, [(headers(**changes), value)]))
    found = wait_until(lambda: parked_with(platform, reason, mark), f"{reason} is parked")
    assert found["service"] == "scheduler"
    assert found["value"]["size_bytes"] == len(value)
    assert base64.b64decode(found["value"]["base64"]) == value[:MAX_SHOWN_BYTES]
    listed = cli(platform, "parked", "list", "--output", "json")
    assert found["parked_id"] in listed.stdout
    with platform.client() as client:  # and nothing stopped
        assert client.post("/v1/jobs", json={"spec": GOOD}).status_code in (201, 202)


def parked_with(platform: StandalonePlatform, reason: str, mark: str) -> dict[str, Any] | None:
    records = platform.get("/v1/parked", limit=200)["records"]
    for record in records:
        if record["reason"] == reason:
            whole: dict[str, Any] = platform.get(f"/v1/parked/{record['parked_id']}")
            if mark in json.dumps(whole):
                return whole
    return None


def cli(platform: StandalonePlatform, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DRIVETRAIN_HOME": str(platform.home)}
    return subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", *arguments],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip


def headers(**changes: bytes | None) -> list[tuple[str, bytes]]:
    base: dict[str, bytes | None] = {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_id": uuid.uuid4().hex.encode(),
        "ce_source": b"/tests/bad-input",
        "ce_type": b"job.submit",
        **changes,
    }
    return [(name, value) for name, value in base.items() if value is not None]


def access(platform: StandalonePlatform) -> dict[str, Any]:
    kafka = platform.connection["kafka"]
    return {
        "bootstrap_servers": kafka["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka["username"],
        "sasl_plain_password": kafka["password"],
    }


async def send(
    platform: StandalonePlatform,
    records: Sequence[tuple[list[tuple[str, bytes]], bytes]],
    key: str = "k",
) -> list[str]:
    """Produce to commands.jobs as another system would. Returns the event ids."""
    producer = AIOKafkaProducer(**access(platform))
    await producer.start()
    try:
        for record_headers, value in records:
            await producer.send_and_wait(
                "drivetrain.commands.jobs", value=value, key=key.encode(), headers=record_headers
            )
    finally:
        await producer.stop()
    return [dict(record_headers).get("ce_id", b"").decode() for record_headers, _ in records]


async def answer_to(platform: StandalonePlatform, event_id: str) -> dict[str, Any]:
    """The job_request.rejected that names this command."""
    consumer = AIOKafkaConsumer(
        "drivetrain.events.jobs", auto_offset_reset="earliest", **access(platform)
    )
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            async for record in consumer:
                if dict(record.headers)["ce_type"] == b"job_request.rejected":
                    data: dict[str, Any] = json.loads(record.value)
                    if data["command_event_id"] == event_id:
                        return data
    finally:
        await consumer.stop()
    raise AssertionError("no reply")
