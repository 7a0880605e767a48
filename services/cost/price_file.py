"""Reads the price book from its YAML file. Raises ConfigurationError with the fix."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from services.cost.core.prices import Price, PriceBook, problems
from services.runtime.errors import ConfigurationError

# 10,000 dollars: what 100,000 slots cost in a year is still a bigint.
MAX_MICRO_USD = 10_000_000_000


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    device_type: str
    pool: str | None = None
    valid_from: AwareDatetime
    micro_usd_per_slot_hour: Annotated[int, Field(strict=True, ge=0, le=MAX_MICRO_USD)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prices: list[_Entry]


def read_price_book(path: Path) -> PriceBook:
    """The checked price book of a file."""
    try:
        entries = _File.model_validate(yaml.safe_load(path.read_text())).prices
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"DRIVETRAIN_PRICE_BOOK: {path}: {error}") from error
    prices = tuple(
        Price(
            price_id=entry.id,
            device_type=entry.device_type,
            valid_from=_utc(entry.valid_from),
            micro_usd_per_slot_hour=entry.micro_usd_per_slot_hour,
            pool=entry.pool,
        )
        for entry in entries
    )
    found = problems(prices)
    if found:
        raise ConfigurationError("\n".join(f"DRIVETRAIN_PRICE_BOOK: {path}: {it}" for it in found))
    return PriceBook(prices)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
