"""Amounts as people read them: bytes, money, time spans, counts and numbers.

Pure text from numbers; the same figure reads the same on every page and in every sentence.
"""

import re
from collections.abc import Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(num_bytes: int) -> str:
    """1500 -> '1.5 kB' (powers of 1000, as disks are sold)."""
    amount = float(num_bytes)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """The two leading units: '1 h 3 min', '42 s', '0.4 s'."""
    if seconds < 0:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (secs, "s")]
    while parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def number(value: float) -> str:
    """Four significant digits, without trailing zeros: 0.25, 5e-5."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.4g}")


def count(amount: int, noun: str, plural: str = "") -> str:
    """'1 slot', '2 slots'."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


def ranges(numbers: Sequence[int]) -> str:
    """(0, 1, 2, 5) -> '0-2, 5'."""
    spans: list[list[int]] = []
    for current in sorted(set(numbers)):
        if spans and current == spans[-1][1] + 1:
            spans[-1][1] = current
        else:
            spans.append([current, current])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
