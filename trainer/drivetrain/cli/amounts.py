"""Amounts as people read them: bytes, money, spans of time, moments, steps, numbers."""

import re
from datetime import datetime

from drivetrain_schemas import units


def size(num_bytes: int | None) -> str:
    """1500 -> '1.5 kB'."""
    if num_bytes is None:
        return "-"
    amount = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable")


def money(micro_usd: int | None) -> str:
    return "-" if micro_usd is None else units.money(micro_usd)


def duration(seconds: float | None) -> str:
    """The two leading units: '1 h 3 min', '42 s'."""
    if seconds is None:
        return "-"
    whole = max(0, round(seconds))
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (secs, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count) or "0 s"


def moment(text: str | None) -> str:
    """A time of the platform in this machine's own time zone."""
    if not text:
        return "-"
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text


def steps(step: int | None, max_steps: int | None) -> str:
    """'120/400', '120', or a dash before the first."""
    if step is None:
        return "-"
    return f"{step}/{max_steps}" if max_steps else str(step)


def number(value: float) -> str:
    """Six significant digits, without trailing zeros: 0.25, 5e-5."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.6g}")
