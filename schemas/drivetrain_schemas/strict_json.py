"""JSON as requests may be written: no duplicate keys, no NaN, no endless depth or digits.

What a lenient parser guesses at (which of two equal keys counts, what NaN means) is refused here,
because two services that guess differently would act on two different requests.
"""

import json
from typing import Any

MAX_DEPTH = 32
MAX_DIGITS = 64


class InvalidJson(ValueError):
    """The text is not JSON as we accept it; the message says where or why."""


def loads(text: bytes | str) -> Any:
    """Parse strictly. Raises InvalidJson."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_real,
        )
    except InvalidJson:
        raise
    except RecursionError:
        raise InvalidJson(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError among them
        raise InvalidJson(f"not JSON: {error}") from error
    check_depth(value)
    return value


def check_depth(value: Any, limit: int = MAX_DEPTH) -> None:
    """Raise InvalidJson where containers are nested deeper than `limit`."""
    level = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise InvalidJson(f"nested deeper than {limit} levels")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InvalidJson(f"the key {key!r:.80} stands twice in one object")
        result[key] = value
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
