"""Whatever arrives, `parse` either returns an event or raises InvalidEvent."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.envelope import InvalidEvent, encode_payload, parse
from drivetrain_schemas.registry import all_kinds

GOLDEN = Path(__file__).parents[2] / "golden"
RECORDS = [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json"))]
TYPES = sorted({type_name for type_name, _ in all_kinds()})

# Half surrogate pairs too, which JSON can write and UTF-8 cannot.
texts = st.text(st.characters(exclude_categories=()))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
header_names = st.sampled_from(
    [
        "content-type",
        "Content-Type",
        "CE_ID",
        "ce_",
        "x",
        *("ce_id", "ce_source", "ce_type", "ce_specversion", "ce_time", "ce_tenantid"),
        *("ce_sequence", "ce_dataschema", "ce_traceparent"),
    ]
)


@given(
    st.lists(st.tuples(header_names, st.none() | st.binary(max_size=60)), max_size=12),
    st.none() | st.binary(max_size=400),
    st.integers(),
)
def test_any_bytes(headers: list[Any], value: bytes | None, timestamp_ms: int) -> None:
    with suppress(InvalidEvent):
        parse(headers, value, timestamp_ms=timestamp_ms)


@given(st.dictionaries(st.sampled_from(["id", "source", "time", "sequence", "data"]), values))
def test_any_structured_document(members: dict[str, Any]) -> None:
    document = {"specversion": "1.0", "id": "1", "source": "/s", "type": "job.submit", **members}
    with suppress(InvalidEvent):
        parse([("content-type", b"application/cloudevents+json")], json.dumps(document).encode())


@given(st.sampled_from(TYPES), values)
def test_any_json_as_payload(type_name: str, value: Any) -> None:
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/s"),
        ("ce_type", type_name.encode()),
    ]
    with suppress(InvalidEvent):
        parse(headers, json.dumps(value).encode())


@given(st.sampled_from(RECORDS), st.data())
def test_a_good_record_with_one_part_replaced(record: Any, data: st.DataObject) -> None:
    """The interesting inputs lie next to good ones; what passes is written and read the same."""
    changed = json.loads(json.dumps(record["value"]))
    container, name = data.draw(st.sampled_from(_places(changed)))
    container[name] = data.draw(values)
    headers = [(key, text.encode()) for key, text in record["headers"].items()]
    with suppress(InvalidEvent):
        event = parse(headers, json.dumps(changed).encode())
        assert parse(headers, encode_payload(event.payload)) == event


@given(st.sampled_from(RECORDS), header_names, st.none() | st.binary() | st.text().map(str.encode))
def test_a_good_record_with_one_header_replaced(
    record: Any, name: str, replacement: bytes | None
) -> None:
    headers: list[tuple[str, bytes | None]] = [
        (key, replacement if key == name else text.encode())
        for key, text in record["headers"].items()
    ]
    with suppress(InvalidEvent):
        parse(headers, json.dumps(record["value"]).encode())


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) in the document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found
