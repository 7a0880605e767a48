"""What was once written is read by every later version, and written again the same."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contract_documents.json_schemas import file_name, json_schema
from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import (
    InvalidPayload,
    encode,
    encode_payload,
    encode_structured,
    parse,
)
from drivetrain_schemas.registry import all_kinds

GOLDEN = Path(__file__).parent
CLASSES = list(all_kinds().values())
SCHEMAS = {file_name(each): json_schema(each) for each in CLASSES}
RECORDS = sorted(GOLDEN.glob("*.json"))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def headers_of(record: Any) -> list[tuple[str, bytes]]:
    return [(name, text.encode()) for name, text in record["headers"].items()]


def value_of(record: Any) -> bytes:
    return json.dumps(record["value"]).encode()


@pytest.mark.parametrize("payload_class", CLASSES, ids=file_name)
def test_every_registered_type_has_a_record(payload_class: type[Payload]) -> None:
    assert (GOLDEN / file_name(payload_class)).exists(), "write a golden record of it by hand"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_no_type_was_dropped(path: Path) -> None:
    assert path.name in {file_name(each) for each in CLASSES}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_is_read_and_written_again_the_same(path: Path) -> None:
    record = read(path)
    event = parse(headers_of(record), value_of(record))
    headers, key, value = encode(event)
    assert {name: text.decode() for name, text in headers} == record["headers"]
    assert key.decode() == record["key"]
    assert json.loads(value) == record["value"]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_structured_mode_says_the_same(path: Path) -> None:
    record = read(path)
    event = parse(headers_of(record), value_of(record))
    headers, _, value = encode_structured(event)
    assert parse(headers, value) == event


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_fits_its_schema_and_sets_every_field(path: Path) -> None:
    schema, record = SCHEMAS[path.name], read(path)
    for part in ("value", "least"):
        jsonschema.Draft202012Validator(schema).validate(record[part])
    assert record["value"].keys() >= schema["properties"].keys()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_what_was_always_required_is_enough(path: Path) -> None:
    """A field that is optional stays so, however deep it is: `least` is without all of them."""
    record = read(path)
    assert record["least"].keys() == set(SCHEMAS[path.name]["required"])
    event = parse(headers_of(record), json.dumps(record["least"]).encode())
    assert parse(headers_of(record), encode_payload(event.payload)) == event


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_every_default_is_written_out(path: Path) -> None:
    """So a default may change later: no stored record depends on it (decision 0009)."""
    record, schema = read(path), SCHEMAS[path.name]
    least = json.dumps(record["least"]).encode()
    written = json.loads(encode_payload(parse(headers_of(record), least).payload))
    with_default = {name for name, field in schema["properties"].items() if "default" in field}
    assert with_default <= written.keys()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_each_required_field_is_demanded(path: Path) -> None:
    for name in read(path)["least"]:
        record = read(path)
        del record["value"][name]
        with pytest.raises(InvalidPayload) as caught:
            parse(headers_of(record), value_of(record))
        assert [error.field for error in caught.value.errors] == [name]


@pytest.mark.parametrize("payload_class", CLASSES, ids=file_name)
def test_only_events_admit_fields_from_the_future(payload_class: type[Payload]) -> None:
    record = read(GOLDEN / file_name(payload_class))
    known = parse(headers_of(record), value_of(record))
    for place in _mappings(record["value"]):
        place["field_of_the_future"] = 1
    if payload_class.kind.is_command:
        with pytest.raises(ValueError, match="field_of_the_future: is not a known field"):
            parse(headers_of(record), value_of(record))
    else:
        assert parse(headers_of(record), value_of(record)).payload == known.payload


def _mappings(value: Any) -> list[dict[str, Any]]:
    """The whole and its nested models, but no map whose names are the sender's own."""
    named_by_sender = ("environment", "hyperparameters", "best_hyperparameters", "metrics", "when")
    of_named_values = ("space", "columns", "parameters")
    if isinstance(value, list):
        return [found for item in value for found in _mappings(item)]
    if not isinstance(value, dict):
        return []
    inner = [
        found
        for name, item in value.items()
        if name not in (*named_by_sender, *of_named_values)
        for found in _mappings(item)
    ]
    of_values = [found for name in of_named_values for found in _mappings_in(value.get(name, {}))]
    return [value, *inner, *of_values]


def _mappings_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [found for item in value.values() for found in _mappings(item)]
