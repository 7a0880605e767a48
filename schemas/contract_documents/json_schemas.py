"""One JSON Schema (2020-12) per event type and version.

Commands are closed: an unknown field is refused, at any depth. Events are open: a reader must
ignore fields it does not know, so that a newer writer can add optional ones. A field that may be
None in the classes is published as optional and never null, since None is not written.
"""

import json
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import data_schema

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def file_name(payload_class: type[Payload]) -> str:
    kind = payload_class.kind
    return f"{kind.type}.v{kind.version}.json"


def json_schema(payload_class: type[Payload]) -> Schema:
    kind = payload_class.kind
    # For a command, describe what a writer may send; for an event, what a reader may receive.
    made = payload_class.model_json_schema(
        mode="validation" if kind.is_command else "serialization"
    )
    return {"$schema": DIALECT, "$id": data_schema(kind), **_plain(made, kind.is_command)}


def text(schema: Schema) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _plain(node: Any, is_closed: bool) -> Any:
    """Without parts that only Python or OpenAPI uses: generated titles, None, `discriminator`."""
    if isinstance(node, list):
        return [_plain(item, is_closed) for item in node]
    if not isinstance(node, dict):
        return node
    plain: Schema = {}
    for key, value in _with_checked_names(_without_null(node)).items():
        if key in ("properties", "$defs"):
            plain[key] = {name: _plain(schema, is_closed) for name, schema in value.items()}
        elif key == "default":
            plain[key] = _without_nones(value)
        elif key not in ("discriminator", "title") and (key, value) != (
            "additionalProperties",
            False,
        ):
            plain[key] = _plain(value, is_closed)
    if "properties" in plain and is_closed:
        plain["additionalProperties"] = False
    return plain


def _without_null(node: Schema) -> Schema:
    branches = [branch for branch in node.get("anyOf", ()) if branch != {"type": "null"}]
    if "anyOf" not in node or len(branches) == len(node["anyOf"]):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if rest.get("default", "") is None:
        del rest["default"]
    return {**branches[0], **rest} if len(branches) == 1 else {"anyOf": branches, **rest}


def _with_checked_names(node: Schema) -> Schema:
    """A mapping with a pattern for names: `patternProperties` alone would allow other names."""
    if "patternProperties" not in node:
        return node
    ((pattern, values),) = node["patternProperties"].items()
    rest = {key: value for key, value in node.items() if key != "patternProperties"}
    names = {**node.get("propertyNames", {}), "pattern": pattern}
    return {**rest, "propertyNames": names, "additionalProperties": values}


def _without_nones(default: Any) -> Any:
    if isinstance(default, dict):
        return {key: _without_nones(value) for key, value in default.items() if value is not None}
    return default
