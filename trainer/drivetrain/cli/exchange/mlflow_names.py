"""Names and values as MLflow takes them. Pure.

A name of ours may hold any printable character. MLflow refuses some, and names that are no plain
paths: such a name is changed and gets an ending made of the original one, so that no two names fall
together and every export gives the same.
"""

import hashlib
import math
import posixpath
import re

MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 8000
_REFUSED = re.compile(r"[^\w./ :-]")
_REFUSED_IN_PATHS = re.compile(r"[^\w./ @+=,~()-]")
_MAX_FLOAT = 1.7976931348623157e308

# Of the same step and value, whatever NaN it is.
Point = tuple[int, float | str]


def key(name: str, rank: int = 0) -> str:
    """The key of a series or a parameter; a series of another rank is in a folder of its rank."""
    plain = posixpath.normpath(_REFUSED.sub("_", name)).strip("/")
    if plain.startswith("..") or plain == ".":
        plain = plain.replace(".", "_")
    if plain != name:
        plain += f"-{_ending(name)}"
    return plain if rank == 0 else f"rank_{rank}/{plain}"


def file_path(path: str) -> str:
    """The path of an artifact."""
    plain = _REFUSED_IN_PATHS.sub("_", path)
    return plain if plain == path else f"{plain}-{_ending(path)}"


def _ending(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]


def json_value(value: float) -> float | str:
    """As JSON of protobuf spells it."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def point(step: int, value: float | str) -> Point:
    """What tells a point from others of its series, sent or read back.

    A store in SQL has the largest number in the place of an infinite one.
    """
    number = float(value)
    if number != number:
        return step, "nan"
    return step, max(-_MAX_FLOAT, min(_MAX_FLOAT, number))
