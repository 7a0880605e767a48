"""Texts with a form: the pattern that machines check, and in words what it admits.

A regular expression tells most readers nothing, so `errors` answers with the words. Lengths are
checked before the pattern and have an answer of their own.
"""

from pydantic import StringConstraints

# What to write instead, by pattern.
WORDS: dict[str, str] = {}


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


_NO_NUL = r"^[^\x00]*$"
WORDS[_NO_NUL] = "text without NUL characters"
