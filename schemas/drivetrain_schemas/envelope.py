"""The outer form of every event: CloudEvents 1.0 over the Kafka protocol binding.

Binary mode is written (attributes in `ce_*` headers, the payload alone as value); structured mode
(`content-type: application/cloudevents+json`, any case, parameters allowed) is read as well.
`parse` turns a record into an `Event` or raises `InvalidEvent` with a machine-readable reason; it
never guesses.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas import strict_json
from drivetrain_schemas.base import Payload, UtcTime
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import DEFAULT_TENANT, TenantId
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.registry import all_kinds

MAX_EVENT_BYTES = 256 * 1024
SPEC_VERSION = "1.0"
_DATASCHEMA = "urn:drivetrain:schema:"

Headers = Sequence[tuple[str, bytes]]
P = TypeVar("P", bound=Payload, covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[P]):
    """One event. `seq` counts the events of one (topic, key) without a gap; None in commands."""

    event_id: str
    source: str
    occurred_at: datetime
    tenant_id: str
    payload: P
    seq: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None
    subject: str | None = None

    @property
    def type(self) -> str:
        return self.payload.kind.type

    @property
    def version(self) -> int:
        return self.payload.kind.version


class InvalidReason(StrEnum):
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    CONTENT_TYPE = "content_type"
    NOT_JSON = "not_json"
    MISSING_ATTRIBUTE = "missing_attribute"
    INVALID_ATTRIBUTE = "invalid_attribute"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_VERSION = "unknown_version"
    INVALID_PAYLOAD = "invalid_payload"


class InvalidEvent(ValueError):
    """The record is not an event we know. `reason` is for machines, the message for people."""

    def __init__(self, reason: InvalidReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class InvalidPayload(InvalidEvent):
    """The envelope is sound and the type is known, but the payload does not fit it.

    A service may answer its sender by `attributes` and the unvalidated `data`.
    """

    def __init__(
        self,
        payload_class: type[Payload],
        attributes: "Attributes",
        data: Any,
        errors: tuple[FieldError, ...],
    ) -> None:
        detail = "; ".join(f"{error.field}: {error.message}" for error in errors[:5])
        super().__init__(InvalidReason.INVALID_PAYLOAD, detail)
        self.payload_class = payload_class
        self.attributes = attributes
        self.data = data
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Attributes:
    """The context attributes of one record, checked."""

    event_id: str
    source: str
    type: str
    version: int
    tenant_id: str
    occurred_at: datetime
    seq: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None
    subject: str | None = None
    raw: Mapping[str, str] = field(default_factory=dict)


def encode(event: Event[Payload]) -> tuple[list[tuple[str, bytes]], bytes, bytes]:
    """Headers, key and value of a record in binary mode."""
    return encode_headers(event), event.payload.key.encode(), encode_payload(event.payload)


def encode_payload(payload: Payload) -> bytes:
    """The payload as JSON without the fields that stand at None."""
    return payload.model_dump_json(exclude_none=True).encode()


def encode_headers(event: Event[Payload]) -> list[tuple[str, bytes]]:
    kind = event.payload.kind
    attributes: dict[str, str | None] = {
        "specversion": SPEC_VERSION,
        "id": event.event_id,
        "source": event.source,
        "type": kind.type,
        "time": event.occurred_at.isoformat().replace("+00:00", "Z"),
        "subject": event.subject,
        "dataschema": f"{_DATASCHEMA}{kind.type}:{kind.version}",
        "tenantid": event.tenant_id,
        "sequence": None if event.seq is None else str(event.seq),
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
        "traceparent": event.traceparent,
    }
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items() if text]
    return [("content-type", b"application/json"), *headers]


def parse(headers: Headers, value: bytes | None) -> Event[Payload]:
    """Read a record of either mode. Raises InvalidEvent, or InvalidPayload with the attributes."""
    if not value:
        raise InvalidEvent(InvalidReason.EMPTY, "the record has no value")
    if len(value) > MAX_EVENT_BYTES:
        raise InvalidEvent(
            InvalidReason.TOO_LARGE, f"{len(value)} bytes (at most {MAX_EVENT_BYTES})"
        )
    raw, data = _open(headers, value)
    attributes = _check_attributes(raw)
    payload_class = _KINDS.get((attributes.type, attributes.version))
    if payload_class is None:
        raise _unknown(attributes)
    try:
        payload = payload_class.model_validate(data)
    except ValidationError as error:
        errors = field_errors(error)
        raise InvalidPayload(payload_class, attributes, data, errors) from error
    return Event(
        event_id=attributes.event_id,
        source=attributes.source,
        occurred_at=attributes.occurred_at,
        tenant_id=attributes.tenant_id,
        payload=payload,
        seq=attributes.seq,
        correlation_id=attributes.correlation_id,
        causation_id=attributes.causation_id,
        traceparent=attributes.traceparent,
        subject=attributes.subject,
    )


def header(headers: Headers, name: str) -> str | None:
    """The last header of this name, whatever its case."""
    found = [text for key, text in headers if key.lower() == name]
    return found[-1].decode("utf-8", "replace") if found else None


def _open(headers: Headers, value: bytes) -> tuple[dict[str, str], Any]:
    content_type = (header(headers, "content-type") or "").split(";")[0].strip().lower()
    if content_type == "application/cloudevents+json":
        document = _json(value)
        if not isinstance(document, dict):
            raise InvalidEvent(InvalidReason.NOT_JSON, "a structured event is a JSON object")
        data = document.pop("data", None)
        return {name: _attribute_text(name, text) for name, text in document.items()}, data
    if content_type.startswith("application/cloudevents"):
        raise InvalidEvent(
            InvalidReason.CONTENT_TYPE,
            f"{content_type}: of the structured formats only application/cloudevents+json is read",
        )
    if content_type not in ("application/json", ""):
        raise InvalidEvent(InvalidReason.CONTENT_TYPE, f"{content_type}: write application/json")
    raw = {
        key[3:].lower(): text.decode("utf-8", "replace")
        for key, text in headers
        if key.lower().startswith("ce_")
    }
    return raw, _json(value)


def _json(value: bytes) -> Any:
    try:
        return strict_json.loads(value)
    except strict_json.InvalidJson as error:
        raise InvalidEvent(InvalidReason.NOT_JSON, str(error)) from error


def _attribute_text(name: str, value: Any) -> str:
    if isinstance(value, bool | int | str):
        return str(value)
    raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, f"{name}: write a string")


_KINDS = all_kinds()
_TIME: TypeAdapter[datetime] = TypeAdapter(UtcTime)
_TENANT: TypeAdapter[str] = TypeAdapter(TenantId)


def _check_attributes(raw: Mapping[str, str]) -> Attributes:
    for name in ("specversion", "id", "source", "type"):
        if not raw.get(name):
            raise InvalidEvent(InvalidReason.MISSING_ATTRIBUTE, f"the attribute {name} is missing")
    if raw["specversion"] != SPEC_VERSION:
        raise InvalidEvent(
            InvalidReason.INVALID_ATTRIBUTE, f"specversion {raw['specversion']}: write 1.0"
        )
    for name in ("id", "source", "type", "subject"):
        if len(raw.get(name, "")) > 512:
            raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, f"{name}: over 512 characters")
    sequence = raw.get("sequence")
    if sequence is not None and not (sequence.isascii() and sequence.isdigit()):
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, "sequence: write a whole number")
    return Attributes(
        event_id=raw["id"],
        source=raw["source"],
        type=raw["type"],
        version=_version(raw),
        tenant_id=_checked(_TENANT, "tenantid", raw.get("tenantid", DEFAULT_TENANT)),
        occurred_at=_checked(_TIME, "time", raw.get("time", "1970-01-01T00:00:00Z")),
        seq=None if sequence is None else int(sequence[:18]),
        correlation_id=raw.get("correlationid"),
        causation_id=raw.get("causationid"),
        traceparent=raw.get("traceparent"),
        subject=raw.get("subject"),
        raw=dict(raw),
    )


T = TypeVar("T")


def _checked(adapter: TypeAdapter[T], name: str, text: str) -> T:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        detail = f"{name}: {error.errors()[0]['msg']}"
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail) from error


def _version(raw: Mapping[str, str]) -> int:
    """The version stands at the end of `dataschema`; without one the first version is meant."""
    schema = raw.get("dataschema")
    if not schema:
        return 1
    prefix = f"{_DATASCHEMA}{raw['type']}:"
    digits = schema.removeprefix(prefix)
    if digits == schema or not digits.isascii() or not digits.isdigit() or len(digits) > 6:
        detail = f"dataschema {schema:.120}: write {prefix}1"
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail)
    return int(digits)


def _unknown(attributes: Attributes) -> InvalidEvent:
    known = sorted(version for type_, version in _KINDS if type_ == attributes.type)
    if not known:
        return InvalidEvent(InvalidReason.UNKNOWN_TYPE, f"no event type {attributes.type:.120}")
    detail = f"{attributes.type} version {attributes.version}: known are {known}"
    return InvalidEvent(InvalidReason.UNKNOWN_VERSION, detail)


def encode_structured(event: Event[Payload]) -> tuple[list[tuple[str, bytes]], bytes, bytes]:
    """Headers, key and value in structured mode, for tests and outside producers."""
    document: dict[str, Any] = {
        key.removeprefix("ce_"): text.decode()
        for key, text in encode_headers(event)
        if key.startswith("ce_")
    }
    document["datacontenttype"] = "application/json"
    document["data"] = json.loads(encode_payload(event.payload))
    headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    return headers, event.payload.key.encode(), json.dumps(document).encode()
