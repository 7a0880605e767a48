"""The envelope of every event: CloudEvents 1.0 with the Kafka protocol binding.

Binary mode is written (attributes in `ce_*` headers, the payload alone as value); structured mode
(`content-type: application/cloudevents+json`, any case, parameters allowed) is read as well.
`parse` turns a record into an `Event` or raises `InvalidEvent` with a machine-readable reason; it
never guesses, and raises nothing else for any bytes. The extension attribute `runtoken` proves
which run the pod that sent a report belongs to.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from drivetrain_schemas import strict_json
from drivetrain_schemas.base import FIRST_YEAR, LAST_YEAR, EventKind, Payload, UtcTime
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import DEFAULT_TENANT, TenantId
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.registry import all_kinds

MAX_EVENT_BYTES = 256 * 1024
SPEC_VERSION = "1.0"
_DATASCHEMA = "urn:drivetrain:schema:"
_STRUCTURED = "application/cloudevents+json"
_ATTRIBUTE_NAME = re.compile("[a-z0-9]+")

# Kafka allows a header without a value; it counts as absent.
Headers = Sequence[tuple[str, bytes | None]]
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
    run_token: str | None = None

    @property
    def type(self) -> str:
        return self.payload.kind.type

    @property
    def version(self) -> int:
        return self.payload.kind.version


@dataclass(frozen=True, slots=True)
class Cause:
    """What caused an event: the attributes of the earlier event that the later one needs."""

    event_id: str
    correlation_id: str | None = None
    traceparent: str | None = None


class InvalidReason(StrEnum):
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    CONTENT_TYPE = "content_type"
    NOT_JSON = "not_json"
    MISSING_ATTRIBUTE = "missing_attribute"
    INVALID_ATTRIBUTE = "invalid_attribute"
    WRONG_TOPIC = "wrong_topic"
    WRONG_KEY = "wrong_key"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_VERSION = "unknown_version"
    INVALID_PAYLOAD = "invalid_payload"
    UNDECODABLE = "undecodable"


class InvalidEvent(ValueError):
    """The record is not a known event. `reason` is for machines, the message for people."""

    def __init__(self, reason: InvalidReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class InvalidPayload(InvalidEvent):
    """The envelope is valid and the type is known, but the payload or the key is invalid.

    A service may reply to its sender, from `attributes` and the unvalidated `data`.
    """

    def __init__(
        self,
        payload_class: type[Payload],
        attributes: "Attributes",
        data: Any,
        errors: tuple[FieldError, ...],
        reason: InvalidReason = InvalidReason.INVALID_PAYLOAD,
    ) -> None:
        detail = "; ".join(f"{error.field}: {error.message}" for error in errors[:5])
        super().__init__(reason, detail)
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
    run_token: str | None = None
    raw: Mapping[str, str] = field(default_factory=dict)


def encode(event: Event[Payload]) -> tuple[list[tuple[str, bytes]], bytes, bytes]:
    """Headers, key and value of a record in binary mode."""
    return encode_headers(event), event.payload.key.encode(), encode_payload(event.payload)


def encode_payload(payload: Payload) -> bytes:
    """The payload as JSON without the fields that are None."""
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
        "dataschema": data_schema(kind),
        "tenantid": event.tenant_id,
        "sequence": None if event.seq is None else str(event.seq),
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
        "traceparent": event.traceparent,
        "runtoken": event.run_token,
    }
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items() if text]
    return [("content-type", b"application/json"), *headers]


def data_schema(kind: EventKind) -> str:
    """The name of the payload's JSON Schema, which contains the version."""
    return f"{_DATASCHEMA}{kind.type}:{kind.version}"


def parse(headers: Headers, value: bytes | None, *, timestamp_ms: int = 0) -> Event[Payload]:
    """Read a record of either mode. Raises InvalidEvent, or InvalidPayload with the attributes.

    `timestamp_ms`, that of the record, is used where the sender left out `time`.
    """
    try:
        return _parse(headers, value, timestamp_ms)
    except (InvalidEvent, MemoryError):
        raise
    except Exception as error:  # any exception of a decoder means that the bytes cannot be read
        raise InvalidEvent(InvalidReason.UNDECODABLE, f"{error!r:.500}") from error


def _parse(headers: Headers, value: bytes | None, timestamp_ms: int) -> Event[Payload]:
    if not value:
        raise InvalidEvent(InvalidReason.EMPTY, "the record has no value")
    if len(value) > MAX_EVENT_BYTES:
        raise InvalidEvent(
            InvalidReason.TOO_LARGE, f"{len(value)} bytes (at most {MAX_EVENT_BYTES})"
        )
    raw, data = _open(headers, value)
    attributes = _check_attributes(raw, timestamp_ms)
    payload_class = _KINDS.get((attributes.type, attributes.version))
    if payload_class is None:
        raise _unknown(attributes)
    try:
        payload = payload_class.model_validate(data, extra=payload_class.kind.unknown_fields)
    except ValidationError as error:
        errors = field_errors(error, contract=payload_class)
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
        run_token=attributes.run_token,
    )


def check_key(event: Event[Payload], key: bytes | None) -> None:
    """Raises InvalidPayload if the key of its record is not the id that the event is about.

    The key selects the partition, and only a partition is ordered. Topics of pods need no key.
    """
    topic = event.payload.kind.topic.name
    if not topic.startswith(("commands.", "events.")):
        return
    want = event.payload.key_within(event.tenant_id)
    if key == want.encode():
        return
    found = "no key" if key is None else f"the key {key[:120].decode('utf-8', 'replace')!r}"
    error = FieldError(field="key", message=f"the record has {found}", fix=f"write the key {want}")
    raise InvalidPayload(
        type(event.payload),
        _attributes(event),
        event.payload.model_dump(mode="json"),
        (error,),
        InvalidReason.WRONG_KEY,
    )


def _attributes(event: Event[Payload]) -> Attributes:
    return Attributes(
        event_id=event.event_id,
        source=event.source,
        type=event.type,
        version=event.version,
        tenant_id=event.tenant_id,
        occurred_at=event.occurred_at,
        seq=event.seq,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        traceparent=event.traceparent,
        subject=event.subject,
        run_token=event.run_token,
    )


def claimed_tenant(headers: Headers, value: bytes | None) -> str | None:
    """The tenant that a record names in either mode, also where it is no valid event otherwise."""
    given = {text or b"" for name, text in headers if name.lower() == "ce_tenantid"}
    try:
        if not given and value and len(value) <= MAX_EVENT_BYTES:
            named = _open(headers, value)[0].get("tenantid")
        else:
            named = given.pop().decode() if len(given) == 1 else None
        return None if named is None else _TENANT.validate_python(named)
    except MemoryError:
        raise
    except Exception:  # as in `parse`: any exception means that it cannot be read
        return None


def header(headers: Headers, name: str) -> str | None:
    """The last header with this name, in any case."""
    found = [text for key, text in headers if key.lower() == name and text is not None]
    return found[-1].decode("utf-8", "replace") if found else None


def _open(headers: Headers, value: bytes) -> tuple[dict[str, str], Any]:
    """The attributes as text, and the data."""
    media_type = _media_type(header(headers, "content-type"), "content-type")
    if media_type == _STRUCTURED:
        return _open_structured(_json(value))
    if media_type.startswith("application/cloudevents"):
        raise InvalidEvent(
            InvalidReason.CONTENT_TYPE,
            f"{media_type:.120}: of the structured formats only {_STRUCTURED} is read",
        )
    _require_json(media_type, "content-type")
    raw, data = _attribute_headers(headers), _json(value)
    if not raw and isinstance(data, dict) and "specversion" in data:
        detail = f"a structured event: its content-type must be {_STRUCTURED}"
        raise InvalidEvent(InvalidReason.CONTENT_TYPE, detail)
    return raw, data


def _open_structured(document: Any) -> tuple[dict[str, str], Any]:
    if not isinstance(document, dict):
        raise InvalidEvent(InvalidReason.NOT_JSON, "a structured event is a JSON object")
    data, data_base64 = document.pop("data", None), document.pop("data_base64", None)
    # In the JSON format null means "not set".
    raw = {
        name: _attribute_text(name, value)
        for name, value in document.items()
        if value is not None and _ATTRIBUTE_NAME.fullmatch(name)
    }
    data_type = _media_type(raw.get("datacontenttype"), "datacontenttype")
    _require_json(data_type, "datacontenttype")
    if data_base64 is None:
        return raw, data
    if data is not None or not isinstance(data_base64, str):
        detail = "data_base64: write a string, and no data beside it"
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail)
    try:
        return raw, _json(base64.b64decode(data_base64, validate=True))
    except ValueError as error:
        if isinstance(error, InvalidEvent):
            raise
        raise InvalidEvent(InvalidReason.NOT_JSON, f"data_base64: {error}") from error


def _attribute_headers(headers: Headers) -> dict[str, str]:
    raw: dict[str, str] = {}
    for key, value in headers:
        if not key.lower().startswith("ce_") or value is None:
            continue
        name = key[3:].lower()
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"{name:.40}: not UTF-8"
            raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail) from error
        if raw.setdefault(name, text) != text:
            detail = f"{name:.40}: given twice with different values"
            raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail)
    return raw


def _media_type(content_type: str | None, name: str) -> str:
    media_type, _, parameters = (content_type or "").partition(";")
    for parameter in parameters.lower().split(";"):
        key, _, charset = parameter.partition("=")
        if key.strip() == "charset" and charset.strip().strip('"') not in ("utf-8", "us-ascii"):
            detail = f"{name}: charset {charset.strip():.40}: write UTF-8"
            raise InvalidEvent(InvalidReason.CONTENT_TYPE, detail)
    return media_type.strip().lower()


def _require_json(media_type: str, name: str) -> None:
    """The JSON format of CloudEvents allows `application/json`, `+json` types, and none."""
    if media_type and not media_type.endswith(("/json", "+json")):
        detail = f"{name}: {media_type:.120}: write application/json"
        raise InvalidEvent(InvalidReason.CONTENT_TYPE, detail)


def _json(value: bytes) -> Any:
    try:
        return strict_json.loads(value)
    except strict_json.InvalidJson as error:
        raise InvalidEvent(InvalidReason.NOT_JSON, str(error)) from error


def _attribute_text(name: str, value: Any) -> str:
    """CloudEvents allows numbers and booleans in extensions; its own attributes are texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and name not in _TEXTS:
        return str(value).lower()
    raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, f"{name:.40}: write a string")


_KINDS = all_kinds()
_TIME: TypeAdapter[datetime] = TypeAdapter(UtcTime)
_TENANT: TypeAdapter[str] = TypeAdapter(TenantId)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = (datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime(LAST_YEAR, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_REQUIRED = ("specversion", "id", "source", "type")
_TEXTS = frozenset({*_REQUIRED, "subject", "time", "dataschema", "datacontenttype"})
_SHORT = (*_REQUIRED, "subject", "dataschema", "correlationid", "causationid", "runtoken")
MAX_ATTRIBUTE_CHARACTERS = 512
# What CloudEvents forbids in an attribute's text.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def _check_attributes(raw: Mapping[str, str], timestamp_ms: int) -> Attributes:
    for name in _REQUIRED:
        if not raw.get(name):
            raise InvalidEvent(InvalidReason.MISSING_ATTRIBUTE, f"the attribute {name} is missing")
    for name in _SHORT:
        text = raw.get(name, "")
        if len(text) > MAX_ATTRIBUTE_CHARACTERS:
            detail = f"{name}: over {MAX_ATTRIBUTE_CHARACTERS} characters"
            raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail)
        if _CONTROL.search(text):
            detail = f"{name}: holds control characters"
            raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail)
    if raw["specversion"] != SPEC_VERSION:
        detail = f"specversion {raw['specversion']:.40}: write {SPEC_VERSION}"
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail)
    return Attributes(
        event_id=raw["id"],
        source=raw["source"],
        type=raw["type"],
        version=_version(raw),
        tenant_id=_checked(_TENANT, "tenantid", raw.get("tenantid", DEFAULT_TENANT)),
        occurred_at=_occurred_at(raw.get("time"), timestamp_ms),
        seq=_sequence(raw.get("sequence")),
        correlation_id=raw.get("correlationid"),
        causation_id=raw.get("causationid"),
        traceparent=_traceparent(raw.get("traceparent")),
        subject=raw.get("subject"),
        run_token=raw.get("runtoken"),
        raw=dict(raw),
    )


def _occurred_at(text: str | None, timestamp_ms: int) -> datetime:
    if text is not None:
        return _checked(_TIME, "time", text)
    # The sender of a record chooses its timestamp too.
    is_in_range = _FIRST_MS <= timestamp_ms <= _LAST_MS
    return _EPOCH + timedelta(milliseconds=timestamp_ms if is_in_range else 0)


def _sequence(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, "sequence: write a whole number")
    return int(text)


def _traceparent(text: str | None) -> str | None:
    """W3C Trace Context: an invalid one is dropped, and a new trace begins."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None


T = TypeVar("T")


def _checked(adapter: TypeAdapter[T], name: str, text: str) -> T:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        problem = field_errors(error)[0]
        detail = f"{name}: {problem.message}" + (f"; {problem.fix}" if problem.fix else "")
        raise InvalidEvent(InvalidReason.INVALID_ATTRIBUTE, detail) from error


def _version(raw: Mapping[str, str]) -> int:
    """The version is the end of `dataschema`; without one it is version 1."""
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
