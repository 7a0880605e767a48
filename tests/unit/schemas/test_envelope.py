"""The envelope: CloudEvents in binary and structured mode, and a reason for every refusal."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from drivetrain_schemas.envelope import (
    MAX_EVENT_BYTES,
    Event,
    InvalidEvent,
    InvalidPayload,
    InvalidReason,
    check_key,
    encode,
    encode_structured,
    header,
    parse,
)
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobCancel

JOB_ID = job_id_for("default", "request-1")
EVENT = Event(
    event_id="id-1",
    source="/tests",
    occurred_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    tenant_id="vision",
    payload=JobCancel(job_id=JOB_ID, reason="no"),
    correlation_id="first",
    causation_id="before",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    subject=JOB_ID,
)
VALUE = json.dumps({"job_id": JOB_ID}).encode()
STRUCTURED = [("content-type", b"application/cloudevents+json")]

Headers = list[tuple[str, bytes | None]]


def binary(**attributes: str | bytes | None) -> Headers:
    """Headers of a job.cancel; an attribute given as None is left out."""
    standing = {"specversion": "1.0", "id": "id-1", "source": "/tests", "type": "job.cancel"}
    return [
        (f"ce_{name}", text.encode() if isinstance(text, str) else text)
        for name, text in {**standing, **attributes}.items()
        if text is not None
    ]


def structured(**members: Any) -> bytes:
    standing = {
        "specversion": "1.0",
        "id": "id-1",
        "source": "/tests",
        "type": "job.cancel",
        "data": {"job_id": JOB_ID},
    }
    return json.dumps({**standing, **members}).encode()


def refusal(headers: Headers, value: bytes | None) -> tuple[InvalidReason, str]:
    with pytest.raises(InvalidEvent) as caught:
        parse(headers, value)
    return caught.value.reason, caught.value.detail


def test_binary_mode_says_all_that_was_written() -> None:
    headers, key, value = encode(EVENT)
    assert parse(headers, value) == EVENT
    assert key == JOB_ID.encode()
    assert json.loads(value) == {"job_id": JOB_ID, "reason": "no"}


def test_structured_mode_says_all_that_was_written() -> None:
    headers, key, value = encode_structured(EVENT)
    assert parse(headers, value) == EVENT
    assert key == JOB_ID.encode()


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/cloudevents+json",
        b"Application/CloudEvents+JSON",
        b"application/cloudevents+json; charset=UTF-8",
        b'application/cloudevents+json ;Charset="utf-8"; x=y',
    ],
)
@pytest.mark.parametrize("name", ["content-type", "Content-Type", "CONTENT-TYPE"])
def test_structured_mode_is_known_in_any_case_and_with_parameters(
    name: str, content_type: bytes
) -> None:
    assert parse([(name, content_type)], structured()).type == "job.cancel"


@pytest.mark.parametrize(
    "content_type",
    [b"application/json", b"APPLICATION/JSON;charset=utf-8", b"text/json", b"application/x+json"],
)
def test_binary_mode_takes_json_under_its_names(content_type: bytes) -> None:
    assert parse([*binary(), ("Content-Type", content_type)], VALUE).type == "job.cancel"


def test_names_of_headers_count_in_any_case() -> None:
    headers = [(name.upper(), text) for name, text in binary(tenantid="vision")]
    assert parse(headers, VALUE).tenant_id == "vision"


def test_a_header_without_a_value_is_absent() -> None:
    headers: Headers = [*binary(), ("content-type", None), ("ce_subject", None)]
    assert parse(headers, VALUE).subject is None
    assert header([("content-type", None)], "content-type") is None


def test_the_last_header_of_a_name_counts() -> None:
    assert header([("Content-Type", b"a"), ("content-type", b"b")], "content-type") == "b"


def test_an_attribute_may_occur_twice_but_not_with_two_values() -> None:
    assert parse([*binary(), ("ce_id", b"id-1")], VALUE).event_id == "id-1"
    reason, detail = refusal([*binary(), ("CE_ID", b"id-2")], VALUE)
    assert (reason, detail[:3]) == (InvalidReason.INVALID_ATTRIBUTE, "id:")


def test_what_an_outside_sender_may_leave_out() -> None:
    event = parse(binary(), VALUE, timestamp_ms=1_769_860_800_000)
    assert event.tenant_id == "default"
    assert event.version == 1
    assert event.occurred_at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert (event.seq, event.correlation_id, event.traceparent) == (None, None, None)


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "0001-12-31T23:59:59Z",
     "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00"],
)  # fmt: skip
def test_a_time_that_postgres_would_return_without_its_zone_is_refused(text: str) -> None:
    with pytest.raises(InvalidEvent, match="outside the years 2 to 9998") as caught:
        parse(binary(time=text), VALUE)
    assert caught.value.reason is InvalidReason.INVALID_ATTRIBUTE


@pytest.mark.parametrize(
    "timestamp_ms", [-(2**63), -62_135_596_800_000, 253402300799999, 2**63 - 1]
)
def test_no_timestamp_of_a_record_stops_its_reader(timestamp_ms: int) -> None:
    assert parse(binary(), VALUE, timestamp_ms=timestamp_ms).occurred_at.year == 1970


def test_times_become_utc() -> None:
    event = parse(binary(time="2026-01-31T14:00:00+02:00"), VALUE)
    assert event.occurred_at == EVENT.occurred_at
    assert event.occurred_at.tzinfo == UTC


def test_a_broken_trace_context_is_left_out() -> None:
    assert parse(binary(traceparent="00-xyz"), VALUE).traceparent is None


def test_null_in_structured_mode_is_absent() -> None:
    assert parse(STRUCTURED, structured(subject=None, tenantid=None)).subject is None


def test_structured_attributes_may_be_numbers_and_truths() -> None:
    event = parse(STRUCTURED, structured(sequence=7, dry=True))
    assert event.seq == 7


@pytest.mark.parametrize("name", ["id", "source", "type", "subject"])
@pytest.mark.parametrize("value", [0, 1, True, False, 1.5, [], {}])
def test_structured_attributes_of_cloudevents_itself_are_texts(name: str, value: Any) -> None:
    reason, detail = refusal(STRUCTURED, structured(**{name: value}))
    assert (reason, detail) == (InvalidReason.INVALID_ATTRIBUTE, f"{name}: write a string")


def test_a_structured_event_with_the_type_of_plain_json_is_reported_as_such() -> None:
    """As version 1 of the CloudEvents SDK for Python sends it."""
    reason, detail = refusal([("content-type", b"application/json")], structured())
    assert reason is InvalidReason.CONTENT_TYPE
    assert "must be application/cloudevents+json" in detail


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00Z", "0002-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999Z"]
)
def test_the_first_and_the_last_years_are_refused(time: str) -> None:
    """Postgres returns the first and the last moment without their zone."""
    assert parse(binary(time="0002-01-01T00:00:00Z"), VALUE).occurred_at.year == 2
    reason, detail = refusal(binary(time=time), VALUE)
    assert reason is InvalidReason.INVALID_ATTRIBUTE
    assert "outside the years 2 to 9998" in detail


@pytest.mark.parametrize("key", [None, b"", b"another", b"\xff", JOB_ID.encode() + b"x"])
def test_a_key_that_is_not_the_id_it_is_about_is_refused(key: bytes | None) -> None:
    event = parse(binary(), VALUE)
    check_key(event, JOB_ID.encode())
    with pytest.raises(InvalidPayload) as refused:
        check_key(event, key)
    invalid = refused.value
    assert invalid.reason is InvalidReason.WRONG_KEY
    assert (invalid.attributes.event_id, invalid.data["job_id"]) == (event.event_id, JOB_ID)
    assert [error.fix for error in invalid.errors] == [f"write the key {JOB_ID}"]


def test_structured_data_may_be_base64() -> None:
    data = base64.b64encode(VALUE).decode()
    event = parse(STRUCTURED, structured(data=None, data_base64=data))
    assert event.payload == JobCancel(job_id=JOB_ID)


ATTRIBUTE = InvalidReason.INVALID_ATTRIBUTE
REFUSED: list[tuple[str, Headers, bytes | None, InvalidReason, str]] = [
    ("no value", binary(), None, InvalidReason.EMPTY, "no value"),
    ("empty value", binary(), b"", InvalidReason.EMPTY, "no value"),
    (
        "300 KiB",
        binary(),
        b" " * 300 * 1024,
        InvalidReason.TOO_LARGE,
        f"307200 bytes (at most {MAX_EVENT_BYTES})",
    ),
    (
        "another content type",
        [*binary(), ("content-type", b"application/avro")],
        VALUE,
        InvalidReason.CONTENT_TYPE,
        "content-type: application/avro: write application/json",
    ),
    (
        "another charset",
        [*binary(), ("content-type", b"application/json; charset=latin-1")],
        VALUE,
        InvalidReason.CONTENT_TYPE,
        "charset latin-1: write UTF-8",
    ),
    (
        "a batch",
        [("content-type", b"application/cloudevents-batch+json")],
        b"[]",
        InvalidReason.CONTENT_TYPE,
        "only application/cloudevents+json",
    ),
    (
        "structured Avro",
        [("content-type", b"application/cloudevents+avro")],
        b"x",
        InvalidReason.CONTENT_TYPE,
        "only application/cloudevents+json",
    ),
    (
        "structured data that is not JSON",
        STRUCTURED,
        structured(datacontenttype="text/xml"),
        InvalidReason.CONTENT_TYPE,
        "datacontenttype: text/xml: write application/json",
    ),
    ("not JSON", binary(), b"hello", InvalidReason.NOT_JSON, "not JSON"),
    ("not UTF-8", binary(), b'{"a": "\xff"}', InvalidReason.NOT_JSON, "not JSON"),
    ("structured, a list", STRUCTURED, b"[1]", InvalidReason.NOT_JSON, "JSON object"),
    (
        "not base64",
        STRUCTURED,
        structured(data=None, data_base64="?"),
        InvalidReason.NOT_JSON,
        "data_base64",
    ),
    (
        "data twice",
        STRUCTURED,
        structured(data_base64=""),
        ATTRIBUTE,
        "data_base64: write a string, and no data beside it",
    ),
    ("no headers", [], VALUE, InvalidReason.MISSING_ATTRIBUTE, "specversion is missing"),
    ("no id", binary(id=None), VALUE, InvalidReason.MISSING_ATTRIBUTE, "id is missing"),
    ("empty id", binary(id=""), VALUE, InvalidReason.MISSING_ATTRIBUTE, "id is missing"),
    ("no source", binary(source=None), VALUE, InvalidReason.MISSING_ATTRIBUTE, "source is"),
    ("no type", binary(type=None), VALUE, InvalidReason.MISSING_ATTRIBUTE, "type is missing"),
    ("CloudEvents 2", binary(specversion="2.0"), VALUE, ATTRIBUTE, "specversion 2.0: write 1.0"),
    ("a long id", binary(id="x" * 513), VALUE, ATTRIBUTE, "id: over 512 characters"),
    ("NUL in the id", binary(id="a\0b"), VALUE, ATTRIBUTE, "id: holds control characters"),
    ("an id that is not UTF-8", binary(id=b"\xff"), VALUE, ATTRIBUTE, "id: not UTF-8"),
    ("a bad tenant", binary(tenantid="../x"), VALUE, ATTRIBUTE, "tenantid: does not have"),
    ("no time", binary(time="yesterday"), VALUE, ATTRIBUTE, "time: is not a time"),
    ("a number as time", binary(time="12"), VALUE, ATTRIBUTE, "time: is not a time"),
    (
        "a time without an offset",
        binary(time="2026-01-31T12:00:00"),
        VALUE,
        ATTRIBUTE,
        "time: ",
    ),
    (
        "a time before the first year",
        binary(time="0001-01-01T00:00:00+23:59"),
        VALUE,
        ATTRIBUTE,
        "time: is outside the years",
    ),
    ("a bad sequence", binary(sequence="-1"), VALUE, ATTRIBUTE, "sequence"),
    ("a long sequence", binary(sequence="1" * 19), VALUE, ATTRIBUTE, "sequence"),
    (
        "an attribute that is a mapping",
        STRUCTURED,
        structured(subject={}),
        ATTRIBUTE,
        "subject: write a string",
    ),
    (
        "another dataschema",
        binary(dataschema="https://example.org/1"),
        VALUE,
        ATTRIBUTE,
        "write urn:drivetrain:schema:job.cancel:1",
    ),
    ("an unknown type", binary(type="job.dance"), VALUE, InvalidReason.UNKNOWN_TYPE, "job.dance"),
    (
        "a version of the future",
        binary(dataschema="urn:drivetrain:schema:job.cancel:2"),
        VALUE,
        InvalidReason.UNKNOWN_VERSION,
        "job.cancel version 2: known are [1]",
    ),
    (
        "a payload that does not fit",
        binary(),
        b"{}",
        InvalidReason.INVALID_PAYLOAD,
        "job_id: is missing",
    ),
]


@pytest.mark.parametrize(
    ("headers", "value", "want_reason", "want_detail"),
    [pytest.param(*case[1:], id=case[0]) for case in REFUSED],
)
def test_what_is_refused_and_why(
    headers: Headers, value: bytes | None, want_reason: InvalidReason, want_detail: str
) -> None:
    reason, detail = refusal(headers, value)
    assert reason == want_reason
    assert want_detail in detail


def test_every_reason_is_covered_above() -> None:
    # The topic is not the envelope's to know: the runtime refuses there.
    assert {case[3] for case in REFUSED} == set(InvalidReason) - {
        InvalidReason.WRONG_TOPIC,
        InvalidReason.WRONG_KEY,
        InvalidReason.UNDECODABLE,
    }


@pytest.mark.parametrize("error", [RecursionError("too deep"), KeyError("x"), OverflowError()])
def test_whatever_a_decoder_raises_means_that_the_bytes_cannot_be_read(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choke(value: bytes) -> None:
        raise error

    monkeypatch.setattr("drivetrain_schemas.strict_json.loads", choke)
    reason, detail = refusal(binary(), VALUE)
    assert reason is InvalidReason.UNDECODABLE
    assert type(error).__name__ in detail


def test_a_lack_of_memory_is_not_blamed_on_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(value: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr("drivetrain_schemas.strict_json.loads", exhaust)
    with pytest.raises(MemoryError):
        parse(binary(), VALUE)


def test_an_invalid_payload_can_be_answered() -> None:
    value = json.dumps({"job_id": JOB_ID, "why": 3}).encode()
    with pytest.raises(InvalidPayload) as caught:
        parse(binary(tenantid="vision", correlationid="first"), value)
    invalid = caught.value
    assert invalid.payload_class is JobCancel
    assert invalid.data == {"job_id": JOB_ID, "why": 3}
    assert (invalid.attributes.event_id, invalid.attributes.tenant_id) == ("id-1", "vision")
    assert invalid.attributes.correlation_id == "first"
    (error,) = invalid.errors
    assert (error.field, error.fix) == ("why", "remove it, or check its spelling")


def test_values_of_none_are_not_written() -> None:
    bare = replace(EVENT, correlation_id=None, causation_id=None, traceparent=None, subject=None)
    names = [name for name, _ in encode(bare)[0]]
    assert names == [
        "content-type",
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_time",
        "ce_dataschema",
        "ce_tenantid",
    ]
