"""The catalogue for people: every topic and every event in one Markdown page."""

from typing import Any

from contract_documents.asyncapi import PREFIX, key, meaning, retention
from contract_documents.json_schemas import Schema, file_name, json_schema
from drivetrain_schemas.base import Payload
from drivetrain_schemas.topics import TOPICS

_HEAD = """\
# Contracts

The events between Drivetrain's services, and between them and other systems. The source is the
package `drivetrain_schemas`. This page, [asyncapi.yaml](asyncapi.yaml) and the JSON Schemas in
[json/](json) are generated from it by `make gen` and checked by `make check`. Do not edit them.

- Format: [CloudEvents 1.0](https://cloudevents.io) on Kafka. Binary mode is written; structured
  mode (`application/cloudevents+json`) is read too. The version of an event type is the last part
  of `ce_dataschema`; the default is version 1.
- To submit a job from another system, see the
  [guide](../docs/guides/submit-by-event.md) and its examples.
- Readers of events ignore fields they do not know. Commands with unknown fields are refused, so
  deploy a new optional field of a command to its reader first.
- A field that is not required is left out when it has no value; null counts as left out.
- A (type, version) changes only compatibly, above all by new optional fields
  ([decision 0009](../docs/decisions/0009-defaults.md)); anything else is a new type or version. A
  record of each is kept in [tests/golden](../tests/golden), and must stay readable.
"""


def catalogue(payload_classes: list[type[Payload]]) -> str:
    parts = [_HEAD, _topics(), _events(payload_classes)]
    for topic in TOPICS:
        on_topic = [each for each in payload_classes if each.kind.topic == topic]
        if on_topic:
            parts.append(f"## {topic.name}\n")
            parts += [_entry(each) for each in on_topic]
    return "\n".join(parts)


def _topics() -> str:
    rows = [[f"`{PREFIX}{t.name}`", key(t), str(t.partitions), retention(t)] for t in TOPICS]
    return "## Topics\n\n" + _table(["topic", "key", "partitions", "retention"], rows)


def _events(payload_classes: list[type[Payload]]) -> str:
    rows = []
    for each in payload_classes:
        kind = each.kind
        first = " ".join(meaning(each).partition("\n\n")[0].split())
        name = f"[{kind.type}](#{_anchor(each)})"
        rows.append([name, kind.topic.name, kind.topic.key, kind.producer, first])
    return "## Events\n\n" + _table(["event", "topic", "key", "producer", "meaning"], rows)


def _anchor(payload_class: type[Payload]) -> str:
    return _title(payload_class).lower().replace(".", "").replace(" ", "-")


def _title(payload_class: type[Payload]) -> str:
    return f"{payload_class.kind.type} v{payload_class.kind.version}"


def _entry(payload_class: type[Payload]) -> str:
    schema = json_schema(payload_class)
    kind = payload_class.kind
    required = schema.get("required", [])
    rows = [
        [f"`{name}`", _type_words(field, schema), "yes" if name in required else ""]
        for name, field in schema["properties"].items()
    ]
    facts = f"Class `{payload_class.__name__}`, written by {_producer_words(kind.producer)}, key"
    link = f"[JSON Schema](json/{file_name(payload_class)})"
    head = f"### {_title(payload_class)}\n\n{meaning(payload_class)}\n\n"
    return (
        head
        + f"{facts} `{kind.topic.key}`. {link}\n\n"
        + _table(["field", "type", "required"], rows)
    )


def _producer_words(producer: str) -> str:
    return {"any": "any system", "pod": "pods"}.get(producer, f"the {producer} service")


def _type_words(field: Schema, root: Schema) -> str:
    """A short form of a field's type; the JSON Schema has the details."""
    if "$ref" in field:
        name = field["$ref"].removeprefix("#/$defs/")
        target = root["$defs"][name]
        return _enum_words(target["enum"]) if "enum" in target else name
    if "anyOf" in field or "oneOf" in field:
        branches = field.get("anyOf") or field["oneOf"]
        return " or ".join(_type_words(branch, root) for branch in branches)
    if "const" in field or "enum" in field:
        return _enum_words(field.get("enum") or [field["const"]])
    if field.get("type") == "array":
        return f"list of {_type_words(field['items'], root)}"
    if field.get("type") == "object":
        values: Any = field.get("additionalProperties")
        return f"map to {_type_words(values, root)}" if isinstance(values, dict) else "map"
    if field.get("format") == "date-time":
        return "UTC time"
    types = field.get("type", "any")
    return " or ".join(types) if isinstance(types, list) else types


def _enum_words(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
