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
