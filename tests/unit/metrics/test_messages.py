"""The fast path and the contract read the same records the same way."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.envelope import Event, InvalidEvent, encode, encode_structured
from drivetrain_schemas.metrics import Column, LaterRun, LogsWritten, SamplesRecorded
from services.metrics.messages import (
    MAX_COUNT,
    fast_logs,
    fast_samples,
    logs_by_contract,
    read_logs,
    read_samples,
    samples_by_contract,
)
from services.runtime.bus import Record

JOB = "job_" + "a" * 26
RUN = "run_" + "a" * 26 + "_1"
BATCH: dict[str, Any] = {
    "tenant_id": "default",
    "job_id": JOB,
    "run_id": RUN,
    "attempt": 1,
    "fence": 1,
    "rank": 0,
    "session": "s1",
    "batch": 3,
    "sent_at": datetime(2026, 1, 1, tzinfo=UTC),
}
SAMPLES = SamplesRecorded(
    **BATCH,
    columns={
        "loss": Column(steps=(1, 2, 3), values=(0.5, "nan", "-inf")),
        "accuracy": Column(steps=(2,), values=(1.0,)),
    },
)
RESENT = SAMPLES.model_copy(update={"resent_by": LaterRun(attempt=2, fence=5)})
LOGS = LogsWritten(**BATCH, first_line=7, lines=('say "hi"\\', "\u00e9\t\x1b[31m", ""))


def record_of(payload: SamplesRecorded | LogsWritten, encoder: Callable[..., Any] = encode) -> Any:
    event = Event("e1", "/pods/p", datetime(2026, 1, 1, tzinfo=UTC), "default", payload)
    headers, key, value = encoder(event)
    return Record(payload.kind.topic.name, 0, 0, 0, key, value, tuple(headers))


def outcome(read: Callable[[Record], Any], record: Record) -> Any:
    try:
        return read(record)
    except InvalidEvent as invalid:
        return invalid.reason


def assert_same(record: Record) -> None:
    for fast, contract in ((fast_samples, samples_by_contract), (fast_logs, logs_by_contract)):
        batch = fast(record)
        if batch is not None:
            assert repr(batch) == repr(outcome(contract, record))


@pytest.mark.parametrize("payload", [SAMPLES, RESENT, LOGS], ids=["samples", "resent", "logs"])
def test_what_a_pod_writes_takes_the_fast_path(payload: SamplesRecorded | LogsWritten) -> None:
    record = record_of(payload)
    assert (fast_samples(record) or fast_logs(record)) is not None
    assert_same(record)


@pytest.mark.parametrize("payload", [SAMPLES, LOGS], ids=["samples", "logs"])
def test_the_run_token_is_read_on_the_fast_path(payload: SamplesRecorded | LogsWritten) -> None:
    record = record_of(payload)
    record = replace(record, headers=(*record.headers, ("ce_runtoken", b"0123")))
    batch = fast_samples(record) or fast_logs(record)
    assert batch is not None
    assert batch.run_token == "0123"
    assert_same(record)


def test_values_that_are_not_finite_arrive_as_floats() -> None:
    steps, values = read_samples(record_of(SAMPLES)).columns["loss"]
    assert steps == [1, 2, 3]
    assert repr(values) == "[0.5, nan, -inf]"


@pytest.mark.parametrize("payload", [SAMPLES, LOGS], ids=["samples", "logs"])
def test_structured_mode_is_read_by_the_contract(payload: SamplesRecorded | LogsWritten) -> None:
    read = read_samples if payload is SAMPLES else read_logs
    assert repr(read(record_of(payload, encode_structured))) == repr(read(record_of(payload)))


SAMPLES_TEXT = record_of(SAMPLES).value.decode()
LOGS_TEXT = record_of(LOGS).value.decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0.5,", "[1e999,"),
        ("[0.5,", "[NaN,"),
        ("[0.5,", "[true,"),
        ("[0.5,", '["0.5",'),
        ("[0.5,", '["Infinity",'),
        ("[0.5,", "[null,"),
        ("[0.5,", "["),
        ("[1,2,3]", "[1,2,-3]"),
        ("[1,2,3]", "[1,2,3.0]"),
        ("[1,2,3]", f"[1,2,{2**53 + 1}]"),
        ('"accuracy":', '"accuracy\\n":'),
        ('"accuracy":', '"9accuracy":'),
        ('"session":"s1"', '"session":"s1\\n"'),
        ('"session":"s1"', '"session":""'),
        ('"attempt":1', '"attempt":0'),
        ('"fence":1', f'"fence":{2**63}'),
        ('"batch":3', f'"batch":{2**64}'),
        ('"batch":3', '"batch":3,"later_field":{"a":[1]}'),
        ("00:00:00Z", "00:00:60Z"),
        ("00:00:00Z", "00:00:00+01:00"),
        ("00:00:00Z", "00:00:00"),
        ("2026-01-01", "2026-02-30"),
        ("}", "} "),
        ("}", "}}"),
    ],
)
def test_samples_of_unusual_form_are_read_alike(old: str, new: str) -> None:
    assert old in SAMPLES_TEXT
    assert_same(with_text(SAMPLES, SAMPLES_TEXT.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"lines":[', '"lines":["\\u0000",'),
        ('"lines":[', '"lines":["\\ud800",'),
        ('"lines":[', '"lines":["\\ud83d\\ude00",'),
        ('"lines":[', '"lines":["\\\\",'),
        ('"lines":[', '"lines":["\\\\\\"",'),
        ('"lines":[', '"lines":["' + "x" * 16_385 + '",'),
        ('"first_line":7', '"first_line":-1'),
        ('"first_line":7', f'"first_line":{MAX_COUNT + 1}'),
        ('"stream":"output"', '"stream":"errors"'),
        ('"num_dropped_bytes":0', '"num_dropped_bytes":0.0'),
    ],
)
def test_logs_of_unusual_form_are_read_alike(old: str, new: str) -> None:
    assert old in LOGS_TEXT
    assert_same(with_text(LOGS, LOGS_TEXT.replace(old, new, 1)))


def test_of_a_key_that_occurs_twice_the_last_value_counts() -> None:
    """Only pods write to these topics, so this is no defence against two readings of a request."""
    samples = SAMPLES_TEXT.replace('"rank":0', '"rank":0,"rank":1', 1)
    logs = LOGS_TEXT.replace('"first_line":7', '"first_line":7,"first_line":8', 1)
    assert read_samples(with_text(SAMPLES, samples)).key.rank == 1
    assert read_logs(with_text(LOGS, logs)).first_line == 8


def test_a_number_may_have_any_length() -> None:
    text = SAMPLES_TEXT.replace("[0.5,", "[0." + "1" * 65 + ",", 1)
    assert read_samples(with_text(SAMPLES, text)).columns["loss"][1][0] == pytest.approx(1 / 9)


@pytest.mark.parametrize("depth", [40, 2_000, 100_000])
def test_deeply_nested_values_are_refused_and_end_nothing(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    for payload, text, read in (
        (SAMPLES, SAMPLES_TEXT.replace("[0.5,", f"[{nested},", 1), read_samples),
        (LOGS, LOGS_TEXT.replace('"lines":[', f'"lines":[{nested},', 1), read_logs),
        (SAMPLES, nested, read_samples),
    ):
        with pytest.raises(InvalidEvent):
            read(with_text(payload, text))


def test_a_deeply_nested_unknown_field_ends_nothing() -> None:
    nested = "[" * 2_000 + "]" * 2_000
    text = SAMPLES_TEXT.replace('"rank":0', f'"rank":0,"later":{nested}', 1)
    with pytest.raises(InvalidEvent):
        read_samples(with_text(SAMPLES, text))


@pytest.mark.parametrize("count", [MAX_COUNT + 1, 2**63, 10**60])
def test_counts_that_the_store_cannot_hold_are_refused(count: int) -> None:
    for field, payload, read in (
        ("batch", SAMPLES, read_samples),
        ("batch", LOGS, read_logs),
        ("first_line", LOGS, read_logs),
        ("num_dropped_bytes", LOGS, read_logs),
    ):
        document = json.loads(record_of(payload).value)
        document[field] = count
        with pytest.raises(InvalidEvent):
            read(with_text(payload, json.dumps(document)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("content-type", b"text/plain"),
        ("ce_specversion", b"0.3"),
        ("ce_id", b""),
        ("ce_id", b"a\nb"),
        ("ce_source", b"s" * 513),
        ("ce_subject", b"s" * 513),
        ("ce_subject", b"\xff"),
        ("ce_type", b"logs.written"),
        ("ce_type", b"run.started"),
        ("ce_dataschema", b"urn:drivetrain:schema:samples.recorded:2"),
        ("ce_tenantid", b"-"),
        ("ce_tenantid", None),
        ("ce_time", None),
        ("ce_id", None),
        ("ce_time", b"yesterday"),
        ("ce_time", b"2026-02-30T00:00:00Z"),
        ("ce_sequence", b"x"),
        ("CE_ID", b"other"),
        ("ce_later", b"\x00"),
    ],
)
@pytest.mark.parametrize("is_added", [True, False], ids=["added", "in its place"])
def test_envelopes_of_unusual_form_are_read_alike(
    name: str, text: bytes | None, is_added: bool
) -> None:
    record = record_of(SAMPLES)
    headers = [item for item in record.headers if is_added or item[0] != name]
    assert_same(replace(record, headers=(*headers, (name, text))))


@pytest.mark.parametrize("name", [name for name, _ in record_of(SAMPLES).headers])
def test_a_missing_attribute_is_read_alike(name: str) -> None:
    record = record_of(SAMPLES)
    assert_same(replace(record, headers=tuple(item for item in record.headers if item[0] != name)))


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[]", b" " * 300_000])
def test_values_that_are_no_batches_are_refused(value: bytes | None) -> None:
    for payload, read in ((SAMPLES, read_samples), (LOGS, read_logs)):
        with pytest.raises(InvalidEvent):
            read(replace(record_of(payload), value=value))


@given(st.data())
def test_any_cut_of_the_text_is_read_alike(data: st.DataObject) -> None:
    """A few characters of the JSON replaced by others: mostly broken, sometimes another meaning."""
    payload = data.draw(st.sampled_from([SAMPLES, LOGS]))
    text = record_of(payload).value.decode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 4))
        piece = data.draw(st.text('0123456789eE+-."\\u,:[]{} nafit', max_size=4))
        text = text[:start] + piece + text[start + length :]
    assert_same(with_text(payload, text))


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_@%é][ A-Za-z0-9_./@%-]{0,9}[a-z0-9%]", fullmatch=True),
        st.lists(st.tuples(st.integers(0, 2**53), st.floats()), max_size=20),
        min_size=1,
        max_size=5,
    )
)
def test_every_valid_batch_takes_the_fast_path_unchanged(
    columns: dict[str, list[tuple[int, float]]],
) -> None:
    payload = SamplesRecorded(
        **BATCH,
        columns={
            name: Column(
                steps=tuple(step for step, _ in samples),
                values=tuple(_word(value) for _, value in samples),
            )
            for name, samples in columns.items()
        },
    )
    batch = fast_samples(record_of(payload))
    assert batch is not None
    assert repr(batch.columns) == repr(
        {name: ([s for s, _ in pairs], [v for _, v in pairs]) for name, pairs in columns.items()}
    )


def _word(value: float) -> Any:
    return value if value - value == 0 else str(value)


def with_text(payload: SamplesRecorded | LogsWritten, text: str) -> Record:
    return replace(record_of(payload), value=text.encode("utf-8", "surrogatepass"))
