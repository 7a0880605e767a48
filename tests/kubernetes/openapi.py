"""JSON Schemas for kubeconform, made from the API server's own description of its objects."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Which the API server reads from text and from numbers.
_INT_OR_STRING = {"type": ["string", "integer"]}
_QUANTITY = {"type": ["string", "number"]}
LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"


def write_schemas(openapi: dict[str, Any], kinds: Iterable[str], directory: Path) -> None:
    """One file per kind, without references, closed against unknown fields."""
    definitions = openapi["definitions"]
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            if kind["kind"] in kinds and not kind["kind"].endswith("Options"):
                group = f"-{kind['group'].split('.')[0]}" if kind["group"] else ""
                file = directory / f"{kind['kind'].lower()}{group}-{kind['version']}.json"
                file.write_text(json.dumps(_inlined(name, definitions)))


def _inlined(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    if name.endswith(".Quantity"):
        return _QUANTITY
    if name.endswith(".IntOrString"):
        return _INT_OR_STRING
    found = _schema(definitions[name], definitions)
    if "properties" in found:
        found["additionalProperties"] = False
    return found


def _schema(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_schema(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return _inlined(schema["$ref"].rsplit("/", 1)[1], definitions)
    return {
        key: {name: _schema(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _schema(value, definitions)
        for key, value in schema.items()
        if not key.startswith("x-") and key not in ("description", "format", "default")
    }
