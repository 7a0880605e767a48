"""Compatibility: what breaks a reader or a writer is found, and a new optional field is none."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from contract_documents import compatibility
from contract_documents.compatibility import is_the_same, violations, words_of_requests

RELEASED: dict[str, Any] = {
    "$defs": {
        "Part": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 0}},
            "required": ["name"],
        },
        "Word": {"enum": ["a", "b"], "type": "string"},
    },
    "description": "What it means.",
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^x$"},
        "word": {"$ref": "#/$defs/Word"},
        "count": {"type": "integer", "default": 3},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
        "named": {
            "type": "object",
            "propertyNames": {"pattern": "^y$"},
            "additionalProperties": {"$ref": "#/$defs/Part"},
        },
    },
    "required": ["id", "parts"],
}

Change = Callable[[dict[str, Any]], Any]
BREAKING: list[tuple[str, Change, str]] = [
    ("a field removed", lambda s: s["properties"].pop("word"), "word: was removed"),
    (
        "a field renamed",
        lambda s: s["properties"].update(key=s["properties"].pop("id")),
        "id: was removed",
    ),
    (
        "a required field added",
        lambda s: (s["properties"].update(new={}), s["required"].append("new")),
        "new: is new and required",
    ),
    ("required becomes optional", lambda s: s["required"].remove("id"), "id: became optional"),
    (
        "optional becomes required",
        lambda s: s["required"].append("word"),
        "word: became required",
    ),
    (
        "another type",
        lambda s: s["properties"]["count"].update(type="number"),
        "count: type 'integer' became 'number'",
    ),
    (
        "a default added",
        lambda s: s["properties"]["word"].update(default="a"),
        "word: default None became 'a'",
    ),
    (
        "a default removed",
        lambda s: s["properties"]["count"].pop("default"),
        "count: default 3 became None",
    ),
    (
        "another pattern",
        lambda s: s["properties"]["id"].update(pattern="^xx?$"),
        "id: pattern",
    ),
    ("a bound added", lambda s: s["properties"]["id"].update(maxLength=9), "id: maxLength None"),
    ("a bound removed", lambda s: s["properties"]["id"].pop("pattern"), "id: pattern"),
    ("a word added", lambda s: s["$defs"]["Word"]["enum"].append("c"), "word: enum"),
    ("a word removed", lambda s: s["$defs"]["Word"]["enum"].pop(), "word: enum"),
    (
        "a branch added",
        lambda s: s["properties"]["either"]["anyOf"].append({"type": "boolean"}),
        "either: anyOf",
    ),
    (
        "a branch changed",
        lambda s: s["properties"]["either"]["anyOf"][1].update(type="number"),
        "either: type 'integer' became 'number'",
    ),
    (
        "a nested field removed",
        lambda s: s["$defs"]["Part"]["properties"].pop("size"),
        "parts[].size: was removed",
    ),
    (
        "a nested field required",
        lambda s: s["$defs"]["Part"]["required"].append("size"),
        "named[].size: became required",
    ),
    (
        "a nested bound changed",
        lambda s: s["$defs"]["Part"]["properties"]["size"].update(minimum=1),
        "parts[].size: minimum 0 became 1",
    ),
    (
        "names narrowed",
        lambda s: s["properties"]["named"]["propertyNames"].update(maxLength=3),
        "named: maxLength None became 3",
    ),
    ("closed", lambda s: s.update(additionalProperties=False), "(whole): additionalProperties"),
]
HARMLESS: list[tuple[str, Change]] = [
    ("nothing", lambda s: None),
    ("a new optional field", lambda s: s["properties"].update(new={"type": "string"})),
    (
        "a new optional nested field",
        lambda s: s["$defs"]["Part"]["properties"].update(new={"type": "string"}),
    ),
    (
        "another value of a default",
        lambda s: s["properties"]["count"].update(default=4),
    ),
    ("other words for people", lambda s: s.update(description="Better said.")),
    (
        "a definition written out",
        lambda s: s["properties"].update(word={"enum": ["a", "b"], "type": "string"}),
    ),
]


@pytest.mark.parametrize(
    ("change", "want"), [pytest.param(*case[1:], id=case[0]) for case in BREAKING]
)
def test_a_breaking_change_is_found(change: Change, want: str) -> None:
    current = copy.deepcopy(RELEASED)
    change(current)
    assert any(found.startswith(want) for found in violations(RELEASED, current))


@pytest.mark.parametrize("change", [pytest.param(case[1], id=case[0]) for case in HARMLESS])
def test_a_harmless_change_is_none(change: Change) -> None:
    current = copy.deepcopy(RELEASED)
    change(current)
    assert violations(RELEASED, current) == []


def with_words(*words: str) -> dict[str, Any]:
    schema = copy.deepcopy(RELEASED)
    schema["$defs"]["Word"]["enum"] = list(words)
    return schema


def test_a_list_of_words_that_a_command_offers_may_gain_a_word() -> None:
    current = with_words("a", "b", "c")
    assert violations(RELEASED, current, words_of_requests([current])) == []


def test_a_list_of_words_that_no_command_offers_may_not() -> None:
    of_requests = words_of_requests([with_words("a", "b")])
    found = violations(RELEASED, with_words("a", "b", "c"), of_requests)
    assert found == ["word: enum ['a', 'b'] became ['a', 'b', 'c']"]


def test_no_value_of_a_request_is_removed_or_replaced() -> None:
    for current in (with_words("a"), with_words("a", "c")):
        assert violations(RELEASED, current, words_of_requests([current])) != []


def test_a_list_of_words_does_not_appear_or_disappear() -> None:
    free = copy.deepcopy(RELEASED)
    del free["$defs"]["Word"]["enum"]
    of_requests = words_of_requests([RELEASED])
    assert violations(RELEASED, free, of_requests) != []
    assert violations(free, RELEASED, of_requests) != []


def test_only_what_is_for_people_leaves_a_schema_the_same() -> None:
    described, grown = copy.deepcopy(RELEASED), copy.deepcopy(RELEASED)
    described["description"] = "Better said."
    grown["properties"]["new"] = {"type": "string"}
    assert is_the_same(RELEASED, described)
    assert not is_the_same(RELEASED, grown)


def test_a_pattern_may_accept_more_where_the_contract_names_the_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = copy.deepcopy(RELEASED)
    current["properties"]["id"]["pattern"] = "^x+$"
    current["properties"]["named"]["propertyNames"]["pattern"] = "^x+$"
    monkeypatch.setattr(compatibility, "WIDENED", {("^x$", "^x+$")})
    assert violations(RELEASED, current) == ["named: pattern '^y$' became '^x+$'"], (
        "only that one, and only from that one"
    )
    assert violations(current, RELEASED) != []


def with_members(*kinds: str, extra: str = "") -> dict[str, Any]:
    """A union told apart by `type`, each member with a field of its own."""
    schema = copy.deepcopy(RELEASED)
    members = [
        {
            "type": "object",
            "properties": {"type": {"const": kind}, "low": {"type": "number"}}
            | ({extra: {"type": "number"}} if extra else {}),
            "required": ["type"],
        }
        for kind in kinds
    ]
    schema["properties"]["union"] = {"oneOf": members}
    return schema


def test_a_union_that_a_command_offers_may_gain_members_and_optional_fields() -> None:
    current = with_members("uniform", "choice", "group", extra="high")
    of_requests = words_of_requests([current])
    assert violations(with_members("uniform", "choice"), current, of_requests) == []


def test_a_union_loses_no_member_and_gains_none_that_no_command_offers() -> None:
    released, fewer = with_members("uniform", "choice"), with_members("uniform")
    assert violations(released, fewer, words_of_requests([fewer])) != []
    assert violations(released, with_members("uniform", "choice", "group")) != []


def test_a_member_of_a_union_keeps_its_fields() -> None:
    current = with_members("uniform", "choice")
    del current["properties"]["union"]["oneOf"][0]["properties"]["low"]
    found = violations(with_members("uniform", "choice"), current, words_of_requests([current]))
    assert found == ["union(uniform).low: was removed"]
