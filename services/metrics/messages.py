"""Records of the `metrics` and `logs` topics into batches, fast.

Hundreds of thousands of samples arrive per second, so a record written by our own pods is decoded
by msgspec directly into structs with the bounds of the contract. Everything else (structured mode,
unusual envelopes, invalid records) is read by the contract itself, `drivetrain_schemas.metrics`,
which reports the error. Both paths give the same batch (tests/unit/metrics/test_messages.py) with
one stated exception: only pods write to these topics, so a key that occurs twice is read as its
last value, a number may have any length, and unknown fields are skipped unread.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from drivetrain_schemas.envelope import MAX_EVENT_BYTES, InvalidEvent, InvalidReason, parse
from drivetrain_schemas.metrics import LogsWritten, SamplesRecorded
from drivetrain_schemas.specs import MAX_METRIC_NAME_CHARACTERS, METRIC_NAME
from services.runtime.bus import Record

# The bound of the contract for counts; for dropped bytes the contract itself allows more.
MAX_COUNT = 2**53

_SamplesOrWord = list[float | Literal["nan", "inf", "-inf"]]
_TenantId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}\Z")]
_JobId = Annotated[str, msgspec.Meta(pattern=r"^job_[a-z2-7]{26}\Z")]
_RunId = Annotated[str, msgspec.Meta(pattern=r"^run_[a-z2-7]{26}_[1-9][0-9]{0,5}\Z")]
_Session = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]{1,32}\Z")]
_SeriesName = Annotated[
    str,
    msgspec.Meta(pattern=rf"^(?:{METRIC_NAME.pattern})\Z", max_length=MAX_METRIC_NAME_CHARACTERS),
]
_SentAt = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z\Z"
    ),
]
_Attempt = Annotated[int, msgspec.Meta(ge=1, le=999_999)]
_Fence = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Rank = Annotated[int, msgspec.Meta(ge=0, le=99_999)]
_Step = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
_Line = Annotated[str, msgspec.Meta(max_length=16_384)]


class Column(msgspec.Struct, frozen=True, gc=False):
    """Samples of one series. Non-finite values are floats here, words in JSON."""

    steps: Annotated[list[_Step], msgspec.Meta(max_length=100_000)]
    values: _SamplesOrWord


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    tenant_id: _TenantId
    job_id: _JobId
    run_id: _RunId
    attempt: _Attempt
    fence: _Fence
    rank: _Rank
    session: _Session
    batch: _Count
    sent_at: _SentAt


class LaterRun(msgspec.Struct, frozen=True):
    """The run of the same job whose pod sends a batch of an earlier run again."""

    attempt: _Attempt
    fence: _Fence


class _SamplesOnWire(_Batch, frozen=True, kw_only=True):
    columns: Annotated[dict[_SeriesName, Column], msgspec.Meta(min_length=1, max_length=1000)]
    resent_by: LaterRun | None = None


class _LogsOnWire(_Batch, frozen=True, kw_only=True):
    first_line: _Count
    lines: list[_Line]
    stream: Literal["output"] = "output"
    num_dropped_bytes: _Count = 0


class BatchKey(msgspec.Struct, frozen=True, order=True):
    """The identity of a batch: a second one with the same key adds nothing."""

    run_id: str
    rank: int
    session: str
    batch: int


class SampleBatch(msgspec.Struct, frozen=True, kw_only=True):
    """`appended_ms`: when the broker appended the record, in milliseconds since 1970."""

    key: BatchKey
    appended_ms: int
    run_token: str | None
    tenant_id: str
    job_id: str
    attempt: int
    fence: int
    sent_at: datetime
    columns: dict[str, tuple[list[int], list[float]]]
    resent_by: LaterRun | None = None

    @property
    def run_id(self) -> str:
        return self.key.run_id


class LogBatch(msgspec.Struct, frozen=True, kw_only=True):
    """`appended_ms`: as of samples."""

    key: BatchKey
    appended_ms: int
    run_token: str | None
    tenant_id: str
    job_id: str
    attempt: int
    fence: int
    sent_at: datetime
    first_line: int
    lines: list[str]
    num_dropped_bytes: int

    @property
    def run_id(self) -> str:
        return self.key.run_id


_samples_decoder = msgspec.json.Decoder(_SamplesOnWire)
_logs_decoder = msgspec.json.Decoder(_LogsOnWire)


def read_samples(record: Record) -> SampleBatch:
    """Raises InvalidEvent."""
    return fast_samples(record) or samples_by_contract(record)


def read_logs(record: Record) -> LogBatch:
    """Raises InvalidEvent."""
    return fast_logs(record) or logs_by_contract(record)


def fast_samples(record: Record) -> SampleBatch | None:
    """The batch, or None where the contract must read the record."""
    if record.value is None or not _is_ours(record, record.value, b"samples.recorded"):
        return None
    try:
        wire = _samples_decoder.decode(record.value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _from_wire_samples(wire, record)


def fast_logs(record: Record) -> LogBatch | None:
    """The batch, or None where the contract must read the record."""
    if record.value is None or not _is_ours(record, record.value, b"logs.written"):
        return None
    try:
        wire = _logs_decoder.decode(record.value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _from_wire_logs(wire, record)


def samples_by_contract(record: Record) -> SampleBatch:
    """Raises InvalidEvent."""
    event = parse(record.headers, record.value)
    payload = event.payload
    if not isinstance(payload, SamplesRecorded):
        raise _unexpected(payload.kind.type)
    by = payload.resent_by
    return SampleBatch(
        key=_key(payload),
        appended_ms=record.timestamp_ms,
        run_token=event.run_token,
        tenant_id=payload.tenant_id,
        job_id=payload.job_id,
        attempt=payload.attempt,
        fence=payload.fence,
        sent_at=payload.sent_at,
        columns={
            name: (list(column.steps), [float(value) for value in column.values])
            for name, column in payload.columns.items()
        },
        resent_by=None if by is None else LaterRun(by.attempt, by.fence),
    )


def logs_by_contract(record: Record) -> LogBatch:
    """Raises InvalidEvent."""
    event = parse(record.headers, record.value)
    payload = event.payload
    if not isinstance(payload, LogsWritten):
        raise _unexpected(payload.kind.type)
    return LogBatch(
        key=_key(payload),
        appended_ms=record.timestamp_ms,
        run_token=event.run_token,
        tenant_id=payload.tenant_id,
        job_id=payload.job_id,
        attempt=payload.attempt,
        fence=payload.fence,
        sent_at=payload.sent_at,
        first_line=_count("first_line", payload.first_line),
        lines=list(payload.lines),
        num_dropped_bytes=_count("num_dropped_bytes", payload.num_dropped_bytes),
    )


_PLAIN = re.compile(rb"[ -~]{1,512}\Z")
_TENANT = re.compile(rb"[a-z0-9][a-z0-9_-]{0,62}\Z")
_TIME = re.compile(rb"[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z\Z")
_REQUIRED = frozenset({"ce_id", "ce_source"})
_RUN_TOKEN = "ce_runtoken"
_OPTIONAL = frozenset(
    {"ce_subject", "ce_correlationid", "ce_causationid", "ce_traceparent", _RUN_TOKEN}
)
# What Postgres cannot store in a text: NUL and half a surrogate pair.
_SUSPECT = re.compile(rb"\\u(0000|[dD][89a-fA-F])")


def _is_ours(record: Record, value: bytes, type_name: bytes) -> bool:
    """True only if the envelope is valid: binary mode, written by a pod, version 1."""
    if len(value) > MAX_EVENT_BYTES or len(record.headers) != len(dict(record.headers)):
        return False
    fixed = {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_type": type_name,
        "ce_dataschema": b"urn:drivetrain:schema:" + type_name + b":1",
    }
    num_known = 0
    for name, text in record.headers:
        if text is None:
            is_valid = False
        elif name in fixed:
            is_valid = text == fixed[name]
        elif name == "ce_tenantid":
            is_valid = _TENANT.match(text) is not None
        elif name == "ce_time":
            is_valid = _TIME.match(text) is not None and _time(text.decode()) is not None
        else:
            is_valid = name in _REQUIRED | _OPTIONAL and _PLAIN.match(text) is not None
        if not is_valid:
            return False
        num_known += name in fixed or name in _REQUIRED
    if num_known != len(fixed) + len(_REQUIRED):
        return False
    return b"\\u" not in value or _SUSPECT.search(value) is None


def _run_token(record: Record) -> str | None:
    """Of a record whose envelope is valid."""
    token = dict(record.headers).get(_RUN_TOKEN)
    return None if token is None else token.decode()


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def _from_wire_samples(wire: _SamplesOnWire, record: Record) -> SampleBatch | None:
    """The batch, or None where the contract must read the record."""
    sent_at = _time(wire.sent_at)
    if sent_at is None:
        return None
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for name, column in wire.columns.items():
        if len(column.steps) != len(column.values):
            return None
        columns[name] = (column.steps, list(map(float, column.values)))
    return SampleBatch(
        key=BatchKey(wire.run_id, wire.rank, wire.session, wire.batch),
        appended_ms=record.timestamp_ms,
        run_token=_run_token(record),
        tenant_id=wire.tenant_id,
        job_id=wire.job_id,
        attempt=wire.attempt,
        fence=wire.fence,
        sent_at=sent_at,
        columns=columns,
        resent_by=wire.resent_by,
    )


def _from_wire_logs(wire: _LogsOnWire, record: Record) -> LogBatch | None:
    sent_at = _time(wire.sent_at)
    if sent_at is None:
        return None
    return LogBatch(
        key=BatchKey(wire.run_id, wire.rank, wire.session, wire.batch),
        appended_ms=record.timestamp_ms,
        run_token=_run_token(record),
        tenant_id=wire.tenant_id,
        job_id=wire.job_id,
        attempt=wire.attempt,
        fence=wire.fence,
        sent_at=sent_at,
        first_line=wire.first_line,
        lines=wire.lines,
        num_dropped_bytes=wire.num_dropped_bytes,
    )


def _key(payload: SamplesRecorded | LogsWritten) -> BatchKey:
    return BatchKey(payload.run_id, payload.rank, payload.session, _count("batch", payload.batch))


def _count(name: str, count: int) -> int:
    if count > MAX_COUNT:
        raise InvalidEvent(InvalidReason.INVALID_PAYLOAD, f"{name}: at most {MAX_COUNT}")
    return count


def _unexpected(type_name: str) -> InvalidEvent:
    return InvalidEvent(InvalidReason.UNKNOWN_TYPE, f"{type_name} does not belong on this topic")
