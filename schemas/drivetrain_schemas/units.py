"""Amounts with their units: no bare numbers in payloads."""

from typing import Annotated

from pydantic import Field

Slots = Annotated[int, Field(ge=0, le=100_000)]
Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Field(ge=0)]
MicroUsd = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
# Of one job.
MAX_DEVICES = 1024
# Counts from 0, as far as every reader of JSON counts exactly.
Ordinal = Annotated[int, Field(ge=0, le=2**53)]
Step = Ordinal
Attempt = Annotated[int, Field(ge=1, le=999_999)]
Fence = Annotated[int, Field(ge=1, le=2**63 - 1)]
Rank = Annotated[int, Field(ge=0, le=99_999)]


def money(micro_usd: int) -> str:
    """Dollars with cents, and with further digits where there are any."""
    dollars, micros = divmod(abs(micro_usd), 1_000_000)
    digits = f"{micros:06d}"
    return f"{'-' if micro_usd < 0 else ''}${dollars:,}.{digits[:2]}{digits[2:].rstrip('0')}"


def short_money(micro_usd: int) -> str:
    """As far as people look: from a dollar on to the cent, from a cent on to a hundredth of it."""
    size = abs(micro_usd)
    return money(round(micro_usd, -4 if size >= 1_000_000 else -2 if size >= 10_000 else 0))
