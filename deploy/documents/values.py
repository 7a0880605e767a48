"""The values of a chart, read from commented YAML: one tree that all documents are made from.

The comment above a key describes it. Lines in it that begin with `@` are for the generator:
`@schema {...}` adds JSON Schema keywords (a `default` there stands for an empty value), `@global`
marks what the umbrella chart may give to all services, and `@settings` the service's own settings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


@dataclass(frozen=True, slots=True)
class Value:
    """One key. It has children, or a default with a schema."""

    name: str
    description: str = ""
    default: Any = None
    schema: Mapping[str, Any] = field(default_factory=dict)
    children: tuple["Value", ...] = ()
    is_global: bool = False
    is_settings: bool = False


def read(path: Path) -> tuple[Value, ...]:
    text = path.read_text()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), path
    return _children(root, text.splitlines())


def merged(own: tuple[Value, ...], common: tuple[Value, ...]) -> tuple[Value, ...]:
    """`own` first, then what only `common` has; mappings of both are merged, `own` counts."""
    of_common = {value.name: value for value in common}
    first = tuple(
        replace(
            value,
            description=value.description or of_common[value.name].description,
            children=merged(value.children, of_common[value.name].children),
        )
        if value.children and value.name in of_common
        else value
        for value in own
    )
    names = {value.name for value in own}
    return first + tuple(value for value in common if value.name not in names)


def json_schema(value: Value, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of one value; `settings` are the properties of the service's own settings."""
    if value.is_settings:
        return _closed(settings)
    if value.children:
        return _closed({child.name: json_schema(child, settings) for child in value.children})
    keywords = {key: item for key, item in value.schema.items() if key != "default"}
    if "const" in keywords or "enum" in keywords or "type" in keywords:
        return keywords
    if isinstance(value.default, dict):
        return {"type": "object", **keywords}
    return {"type": _TYPES[type(value.default)], **keywords}


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def text(values: tuple[Value, ...], depth: int = 0) -> str:
    """The values as the values.yaml that people read."""
    lines = []
    indent = "  " * depth
    for value in values:
        lines += [f"{indent}# {line}".rstrip() for line in value.description.splitlines()]
        if value.children:
            lines += [f"{indent}{value.name}:", text(value.children, depth + 1)]
        else:
            lines.append(f"{indent}{value.name}: {flow(value.default)}")
        if depth == 0:
            lines.append("")
    return "\n".join(lines)


def flow(default: Any) -> str:
    """A value on one line."""
    if isinstance(default, str) and not default:
        return '""'
    dumped = yaml.safe_dump(default, default_flow_style=True, width=10_000, sort_keys=False)
    return dumped.strip().removesuffix("...").strip()


def rows(values: tuple[Value, ...], prefix: str = "") -> list[tuple[str, str, str]]:
    """(name, default, description) of each value, for a table."""
    found = []
    for value in values:
        name = f"{prefix}{value.name}"
        description = value.description.replace("\n", " ")
        if value.children:
            if description:
                found.append((name, "", description))
            found += rows(value.children, f"{name}.")
        else:
            given = value.schema.get("default") or value.default
            found.append((name, "" if given == "" else f"`{flow(given)}`", description))
    return found


def _children(node: yaml.MappingNode, lines: list[str]) -> tuple[Value, ...]:
    return tuple(_value(key, content, lines) for key, content in node.value)


def _value(key: yaml.ScalarNode, content: yaml.Node, lines: list[str]) -> Value:
    notes = _comment(lines, key.start_mark.line)
    marks = [line for line in notes if line.startswith("@")]
    description = "\n".join(line for line in notes if not line.startswith("@"))
    schemas = [yaml.safe_load(mark.removeprefix("@schema")) for mark in marks if "@schema" in mark]
    schema = {name: item for each in schemas for name, item in each.items()}
    is_settings = "@settings" in marks
    is_global = "@global" in marks
    is_block = isinstance(content, yaml.MappingNode) and not schema and not is_settings
    if is_block and isinstance(content, yaml.MappingNode) and content.value:
        children = _children(content, lines)
        return Value(key.value, description, children=children, is_global=is_global)
    default = yaml.safe_load(yaml.serialize(content))
    return Value(key.value, description, default, schema, (), is_global, is_settings)


def _comment(lines: list[str], line: int) -> list[str]:
    """The lines of the comment directly above this line."""
    found: list[str] = []
    while line > 0 and (match := re.match(r"\s*# ?(.*)$", lines[line - 1])):
        found.insert(0, match.group(1))
        line -= 1
    return found
