"""The contracts hold together: every event has one producer, a topic, a meaning and a place in the
published documents, which are up to date."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
import yaml

from contract_documents.json_schemas import file_name, json_schema
from drivetrain_schemas.base import Payload
from drivetrain_schemas.registry import all_kinds
from drivetrain_schemas.topics import FOR_EVER, SERVICES, TOPICS
from schemas import generate

ROOT = Path(__file__).parents[2]
CLASSES = list(all_kinds().values())
EVENTS = [each for each in CLASSES if not each.kind.is_command]


def test_what_is_published_is_up_to_date() -> None:
    stale = generate.differing(generate.documents())
    assert [str(path) for path in stale] == [], "run make gen"


def test_a_stale_or_forgotten_document_is_found(tmp_path: Path) -> None:
    files = generate.documents()
    changed = next(iter(files))
    assert generate.differing({**files, changed: files[changed] + " "}) == [changed]
    gone = {path: text for path, text in files.items() if path != changed}
    assert generate.differing(gone) == [changed]


@pytest.mark.parametrize("payload_class", CLASSES, ids=file_name)
def test_an_event_has_one_producer_and_a_command_any(payload_class: type[Payload]) -> None:
    kind = payload_class.kind
    same_type = [each.kind for each in CLASSES if each.kind.type == kind.type]
    assert {(each.producer, each.topic) for each in same_type} == {(kind.producer, kind.topic)}
    if kind.is_command:
        assert kind.producer == "any"
    else:
        assert kind.producer in (*SERVICES, "pod")


def test_an_event_is_made_by_its_producer_only() -> None:
    producer_of = {each.__name__: each.kind.producer for each in EVENTS}
    assert len(producer_of) == len(EVENTS), "two classes of one name"
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno} makes {name}, which {producer_of[name]} writes"
        for path, name, call in _calls(set(producer_of))
        if _part_of(path) != producer_of[name]
    ]
    assert wrong == []


@pytest.mark.parametrize("payload_class", CLASSES, ids=file_name)
def test_a_payload_says_what_it_means(payload_class: type[Payload]) -> None:
    assert (payload_class.__doc__ or "").strip()
    assert payload_class.__doc__ != Payload.__doc__


@pytest.mark.parametrize("payload_class", CLASSES, ids=file_name)
def test_a_field_that_may_be_none_has_a_default(payload_class: type[Payload]) -> None:
    """None is not written, so a reader of such a field finds nothing."""
    demanded = [
        name
        for name, field in payload_class.model_fields.items()
        if field.is_required() and NoneType in get_args(field.annotation)
    ]
    assert demanded == []


@pytest.mark.parametrize("payload_class", EVENTS, ids=file_name)
def test_times_and_amounts_say_what_they_are(payload_class: type[Payload]) -> None:
    for name, field in json_schema(payload_class)["properties"].items():
        assert (field.get("format") == "date-time") == name.endswith("_at"), name


def test_topics_are_declared_once_and_kept_as_long_as_their_kind_asks() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(names) == len(set(names))
    assert all(t.retention_ms == FOR_EVER for t in TOPICS if t.name.startswith("events."))
    assert {each.kind.topic for each in CLASSES} <= set(TOPICS)


def _calls(names: set[str]) -> Iterator[tuple[Path, str, ast.Call]]:
    """Where platform code makes one of these payloads."""
    for part in ("services", "trainer"):
        for path in sorted((ROOT / part).rglob("*.py")):
            tree = ast.parse(path.read_text())
            contracts = _imported_contracts(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    name, origin = _called(node.func)
                    if name in names and origin in contracts:
                        yield path, name, node


def _imported_contracts(tree: ast.Module) -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("drivetrain_schemas")
        for alias in node.names
    }


def _called(function: ast.expr) -> tuple[str, str]:
    """The name that is called, and the imported name it is reached by."""
    if isinstance(function, ast.Name):
        return function.id, function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr, function.value.id
    return "", ""


def _part_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "pod" if parts[0] == "trainer" else parts[1]


class TestAsyncApi:
    """The document's own rules; the AsyncAPI parser checks it by the standard's."""

    document: dict[str, Any] = yaml.safe_load((ROOT / "schemas" / "asyncapi.yaml").read_text())

    def test_its_version_is_3_0(self) -> None:
        assert self.document["asyncapi"] == "3.0.0"

    def test_every_topic_is_a_channel_with_its_partitions(self) -> None:
        channels = self.document["channels"]
        assert {
            name: channel["bindings"]["kafka"]["partitions"] for name, channel in channels.items()
        } == {topic.name: topic.partitions for topic in TOPICS}

    def test_every_event_is_a_message_of_its_topics_channel(self) -> None:
        for each in CLASSES:
            name = file_name(each).removesuffix(".json")
            channel = self.document["channels"][each.kind.topic.name]
            message = self.document["components"]["messages"][name]
            assert name in channel["messages"]
            assert message["name"] == each.kind.type
            assert message["bindings"]["kafka"]["key"]["type"] == "string"
            fixed = message["headers"]["allOf"][1]["properties"]
            assert fixed["ce_type"] == {"const": each.kind.type}

    def test_commands_are_received_and_all_else_is_sent(self) -> None:
        for operation in self.document["operations"].values():
            topic = operation["channel"]["$ref"].removeprefix("#/channels/")
            want = "receive" if topic.startswith("commands.") else "send"
            assert operation["action"] == want
        assert len(self.document["operations"]) == len(TOPICS)

    def test_every_reference_leads_somewhere(self) -> None:
        for reference in _references(self.document):
            if not reference.startswith("#/"):
                assert (ROOT / "schemas" / reference).is_file()
                continue
            target: Any = self.document
            for part in reference.removeprefix("#/").split("/"):
                target = target[part]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for item in node.values():
            yield from _references(item)
