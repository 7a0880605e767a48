"""A sentence for people, its tone, and longer text to unfold."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Fields = Mapping[str, Any]


class Tone(StrEnum):
    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Sentence:
    """`detail` is longer text to unfold (the end of a log, a list of refused files)."""

    text: str
    tone: Tone = Tone.PLAIN
    detail: str = ""


def with_reason(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text


def request_rejected(p: Fields) -> Sentence:
    errors = "\n".join(
        f"{error['field']}: {error['message']}"
        + (f" (fix: {error['fix']})" if error.get("fix") else "")
        for error in p.get("errors", ())
    )
    return Sentence(f"A request was refused: {p['detail']}", Tone.WARNING, errors)
