"""Reading YAML: one document of plain values, every key with its line.

Ambiguous input is refused with the line: duplicate keys, NaN, tags, anchors and aliases (a few
lines can expand to gigabytes), more than one document, deep nesting, and anything over 1 MiB.
Scalars follow YAML 1.2: `1e-3` is a number and `no` is a string. JSON is YAML.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from drivetrain.cli.errors import InvalidInput

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_DIGITS = 64

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class Document:
    """The value, and on which line of `name` each dotted path begins."""

    name: str
    value: Any
    lines: Mapping[str, int]

    def place(self, field: str) -> str:
        """`name:line` of the deepest part of `field` that is in the document."""
        found = ""
        for part in field.split("."):
            path = f"{found}.{part}" if found else part
            if path in self.lines:
                found = path
        line = self.lines.get(found)
        return self.name if line is None else f"{self.name}:{line}"


def read_document(text: bytes | str, name: str) -> Document:
    """Raises InvalidInput naming the line."""
    content = text.encode() if isinstance(text, str) else text
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"{name} has {len(content):,} bytes", fix=f"a file may have at most {MAX_BYTES:,}"
        )
    try:
        reader = _Reader(yaml.parse(content.decode(), Loader=_Loader), name)
        return Document(name, reader.read(), reader.lines)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 text: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidInput(f"{name}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{name}: not YAML: {error}") from error


class _Reader:
    """Builds the value from parser events, so nothing is expanded before it is checked."""

    def __init__(self, events: Iterator[Any], name: str) -> None:
        self._events = events
        self._name = name
        self.lines: dict[str, int] = {}

    def read(self) -> Any:
        self._expect(yaml.StreamStartEvent)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise InvalidInput(f"{self._name} is empty")
        value = self._value(next(self._events), "", 0)
        self._expect(yaml.DocumentEndEvent)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._error(after, "a second document begins here", "write one per file")
        return value

    def _value(self, event: Any, path: str, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            raise self._error(event, f"the alias *{event.anchor} is not supported", "write it out")
        if event.anchor is not None:
            raise self._error(event, f"the anchor &{event.anchor} is not supported", "leave it out")
        if event.tag is not None:
            raise self._error(event, f"the tag {event.tag} is not supported", "leave it out")
        if depth > MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._scalar(event)

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, path, depth + 1)
            if not isinstance(key, str):
                raise self._error(event, f"the key {key!r:.80} is not a string", "put it in quotes")
            if key in mapping:
                raise self._error(event, f"the key {key:.80} occurs twice", "remove one")
            inner = f"{path}.{key}" if path else key
            self.lines[inner] = event.start_mark.line + 1
            mapping[key] = self._value(next(self._events), inner, depth + 1)
        return mapping

    def _sequence(self, path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            inner = f"{path}.{len(items)}" if path else str(len(items))
            self.lines[inner] = event.start_mark.line + 1
            items.append(self._value(event, inner, depth + 1))
        return items

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if not event.implicit[0]:
            return text  # quoted, or a block of text
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_FINITE.fullmatch(text):
            raise self._error(event, f"{text} is not a finite number", "write a finite number")
        is_integer = any(form.fullmatch(text) for form in (_INTEGER, _OCTAL, _HEXADECIMAL))
        is_number = is_integer or _REAL.fullmatch(text)
        if is_number and len(text) > MAX_DIGITS:
            raise self._error(event, f"a number of {len(text)} digits", "put it in quotes")
        if is_integer:
            return int(text, 0 if text[:2] in ("0o", "0x") else 10)
        if is_number:
            number = float(text)
            if number in (float("inf"), float("-inf")):
                raise self._error(event, f"{text} is too large a number", "write a smaller one")
            return number
        return text

    def _expect(self, kind: type[Any]) -> None:
        event = next(self._events)
        assert isinstance(event, kind), event

    def _error(self, event: Any, message: str, fix: str) -> InvalidInput:
        return InvalidInput(f"{self._name}:{event.start_mark.line + 1}: {message}", fix=fix)
