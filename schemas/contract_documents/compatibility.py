"""Full-transitive compatibility: a released type may gain optional fields and enum values.

`violations` compares the current schema with the released one and names every other change: both
wider and narrower types, since old readers read new events and new readers read old ones. The value
of a default may change too: every writer includes default values, so no stored record depends on
one. An enum of a command may gain values, and a union of a command's values that `type`
distinguishes may gain members, there and in the events that repeat the request (all:
docs/decisions/0009-defaults.md). A pattern may accept more where `form` names the earlier one.
The relation is transitive, so a comparison with the last release covers all earlier ones.
"""

from collections.abc import Collection, Iterable
from typing import Any

from drivetrain_schemas.jobs import WaitingReason
from drivetrain_schemas.metrics import AlertKind
from drivetrain_schemas.text import WIDENED

Schema = dict[str, Any]
Words = tuple[str, ...]

# Lists of events that may grow as those of commands do: docs/decisions/0009-defaults.md.
GROWING: tuple[Words, ...] = (tuple(map(str, WaitingReason)), tuple(map(str, AlertKind)))

_ANNOTATIONS = ("description", "examples", "$schema", "$defs")
_INNER = ("items", "additionalProperties", "propertyNames")


def violations(released: Schema, current: Schema, of_requests: Collection[Words] = ()) -> list[str]:
    """Every change that breaks readers or writers of the released schema.

    `of_requests` are the enums and unions of today's commands; these may have gained values.
    """
    return _compare(_inlined(released, released), _inlined(current, current), "", of_requests)


def is_the_same(released: Schema, current: Schema) -> bool:
    """Nothing changed but what is for people: descriptions, and how definitions are written."""
    return bool(_inlined(released, released) == _inlined(current, current))


def words_of_requests(commands: Iterable[Schema]) -> set[Words]:
    """Every enum in the schemas of commands, and every union by the types of its members."""
    return {words for each in commands for words in _lists_of_words(_inlined(each, each))}


def _lists_of_words(node: Any) -> set[Words]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    found = {words for each in inner for words in _lists_of_words(each)}
    if not isinstance(node, dict):
        return found
    own = node.get("enum")
    found |= {tuple(own)} if isinstance(own, list) else set()
    members = _members(node)
    return found | {tuple(members)} if members else found


def _members(node: Schema) -> dict[str, Schema]:
    """The members of a union by their `type`; empty where it does not distinguish them."""
    by_type = {
        branch.get("properties", {}).get("type", {}).get("const"): branch
        for branch in node.get("oneOf", ())
    }
    return {} if None in by_type else by_type


def _inlined(node: Any, root: Schema) -> Any:
    """References resolved, descriptions left out. Schemas here are not recursive."""
    if isinstance(node, list):
        return [_inlined(item, root) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    plain = {
        key: _inlined(value, root)
        for key, value in node.items()
        if key not in _ANNOTATIONS and key != "properties"
    }
    if "properties" in node:
        fields = node["properties"]
        plain["properties"] = {name: _inlined(field, root) for name, field in fields.items()}
    return plain


def _compare(old: Any, new: Any, path: str, of_requests: Collection[Words]) -> list[str]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [f"{path or '(whole)'}: {old!r} became {new!r}"]
    found = _compare_fields(old, new, path, of_requests)
    for key in sorted(old.keys() | new.keys()):
        if key in ("properties", "required"):
            continue
        if key == "default" and key in old and key in new:
            continue
        if key == "enum" and _only_gained_words(old.get(key), new.get(key), of_requests):
            continue
        if key == "pattern" and (old.get(key), new.get(key)) in WIDENED:
            continue
        if key == "oneOf" and _only_gained_words(_members(old), _members(new), of_requests):
            for kind, member in _members(old).items():
                found += _compare(member, _members(new)[kind], f"{path}({kind})", of_requests)
            continue
        if key in _INNER and key in old and key in new:
            inner = f"{path}[]" if key != "propertyNames" else path
            found += _compare(old[key], new[key], inner, of_requests)
        elif key == "anyOf" and len(old.get(key, ())) == len(new.get(key, ())):
            for old_branch, new_branch in zip(old[key], new[key], strict=True):
                found += _compare(old_branch, new_branch, path, of_requests)
        elif old.get(key) != new.get(key):
            found.append(f"{path or '(whole)'}: {key} {old.get(key)!r} became {new.get(key)!r}")
    return found


def _only_gained_words(old: Any, new: Any, of_requests: Collection[Words]) -> bool:
    return bool(old and new) and tuple(new) in (*of_requests, *GROWING) and set(old) <= set(new)


def _compare_fields(
    old: Schema, new: Schema, path: str, of_requests: Collection[Words]
) -> list[str]:
    found: list[str] = []
    old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
    old_required, new_required = old.get("required", ()), new.get("required", ())
    for name in sorted(old_fields.keys() | new_fields.keys()):
        inner = f"{path}.{name}" if path else name
        if name not in new_fields:
            found.append(f"{inner}: was removed")
        elif name not in old_fields:
            found += [f"{inner}: is new and required"] if name in new_required else []
        else:
            found += _compare(old_fields[name], new_fields[name], inner, of_requests)
            if (name in old_required) != (name in new_required):
                words = "optional" if name in old_required else "required"
                found.append(f"{inner}: became {words}")
    return found
