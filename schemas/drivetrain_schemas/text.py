"""Texts with a pattern: the regular expression, and a description of what it allows.

`errors` shows the description, because it is easier to read than a regular expression. Lengths are
checked before the pattern and have their own message.
"""

import re
from typing import Any

from pydantic import BeforeValidator, StringConstraints

# The descriptions, by pattern.
WORDS: dict[str, str] = {}
# NUL and half a surrogate pair: neither Postgres nor UTF-8 can hold them.
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def form(pattern: str, words: str, *, max_length: int | None = None) -> StringConstraints:
    """Text that matches the whole of `pattern`; `words` completes the sentence "write ..."."""
    whole = f"^{pattern}$"
    WORDS[whole] = words
    return StringConstraints(pattern=whole, strict=True, max_length=max_length)


def free_text(max_length: int, *, min_length: int | None = None) -> StringConstraints:
    """Any text without NUL, which neither Postgres nor a process's environment can hold."""
    return StringConstraints(
        pattern=_NO_NUL, strict=True, min_length=min_length, max_length=max_length
    )


def storable(text: str) -> str:
    """With a replacement for each character that could not be stored."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _replace_unstorable(text: Any) -> Any:
    return storable(text) if isinstance(text, str) else text


# For the output of programs: it must always arrive, so nothing in it is refused.
AS_PRINTED = BeforeValidator(_replace_unstorable)

_NO_NUL = r"^[^\x00]*$"
WORDS[_NO_NUL] = "text without NUL characters"
