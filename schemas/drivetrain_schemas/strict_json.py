"""Strict JSON for requests: no duplicate keys, no NaN, bounded depth and digits, and no text that
cannot be stored (NUL, half a surrogate pair).

Ambiguous input (duplicate keys, NaN) is refused, because two services that interpret it differently
would act on two different requests.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from drivetrain_schemas.text import UNSTORABLE

MAX_DEPTH = 32
MAX_DIGITS = 64
# Of a document that a program of a job wrote: several times the largest list of files.
MAX_VALUES = 1_000_000

# A text that contains one of these may be unstorable.
_SUSPECT = re.compile(r"\\u0000|\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class InvalidJson(ValueError):
    """The text is not strict JSON; the message says where or why."""


def loads(text: bytes | str) -> Any:
    """Parse strictly. Raises InvalidJson."""
    try:
        # Not left to json.loads, which accepts UTF-16 and broken UTF-8 as well.
        characters = text if isinstance(text, str) else text.decode("utf-8")
        value = _DECODER.decode(characters)
    except InvalidJson:
        raise
    except RecursionError:
        raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError among them
        raise InvalidJson(f"not JSON: {error}") from error
    if characters.count("{") + characters.count("[") > MAX_DEPTH:
        check_depth(value)
    if _SUSPECT.search(characters):
        _check_texts(value)
    return value


def check_number(document: bytes | bytearray) -> None:
    """Raise InvalidJson where there are more values than any true document of a job has.

    To be called before parsing: a few bytes each would take a hundred times that in memory.
    """
    if sum(map(document.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise InvalidJson(f"more than {MAX_VALUES:,} values")


def check_depth(value: Any) -> None:
    """Raise InvalidJson where containers are nested deeper than MAX_DEPTH."""
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _containers(_children(parent))]
        if not level:
            return
    raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels")


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _children(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _check_texts(value: Any) -> None:
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            raise InvalidJson("a text holds NUL or half a surrogate pair, which cannot be stored")
    elif isinstance(value, dict):
        for key, child in value.items():
            _check_texts(key)
            _check_texts(child)
    elif isinstance(value, list):
        for child in value:
            _check_texts(child)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise InvalidJson(f"the key {twice!r:.80} occurs twice in one object")
    return result


def _constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(f"a number of {len(digits)} digits (at most {MAX_DIGITS})")
    return int(digits)


def _real(digits: str) -> float:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(f"a number of {len(digits)} digits (at most {MAX_DIGITS})")
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise InvalidJson(f"{digits} is too large for a number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_constant,
    parse_int=_integer,
    parse_float=_real,
)
