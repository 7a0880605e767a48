"""Reads the price book from its YAML file. Raises ConfigurationError with the fix."""

import re
from collections import defaultdict
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.jobs import FieldError
from services.cost.core.prices import Price, PriceBook, problems
from services.cost.core.storage import StoragePrice, StoragePrices
from services.runtime.errors import ConfigurationError
from services.runtime.yaml_file import read_yaml

# 10,000 dollars: what 100,000 slots cost in a year is still a bigint.
MAX_MICRO_USD = 10_000_000_000


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(
            f"{moment.isoformat()} is before the year 1 or after 9999 in UTC: write a time in UTC"
        ) from None


Moment = Annotated[AwareDatetime, AfterValidator(_utc)]
# Spaces around a name would make a price of nothing.
Text = Annotated[str, Field(pattern=r"^\S+$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    device_type: Text
    pool: Text | None = None
    capacity: Literal["spot", "on_demand"] | None = None
    valid_from: Moment
    valid_until: Moment | None = None
    micro_usd_per_slot_hour: Annotated[int, Field(strict=True, ge=0, le=MAX_MICRO_USD)]


class _Storage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    valid_from: Moment
    valid_until: Moment | None = None
    micro_usd_per_gb_month: Annotated[int, Field(strict=True, ge=0, le=MAX_MICRO_USD)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prices: list[_Entry]
    storage: list[_Storage] = []


def read_price_book(path: Path) -> PriceBook:
    """The checked price book of a file."""
    try:
        file = _File.model_validate(read_yaml(path))
    except ValidationError as error:
        wrong = field_errors(error, contract=_File)
        raise ConfigurationError("\n".join(_refusal(path, one) for one in wrong)) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"DRIVETRAIN_PRICE_BOOK: {path}: {error}") from error
    prices = tuple(
        Price(
            price_id=entry.id,
            device_type=entry.device_type,
            valid_from=entry.valid_from,
            micro_usd_per_slot_hour=entry.micro_usd_per_slot_hour,
            pool=entry.pool,
            is_spot=None if entry.capacity is None else entry.capacity == "spot",
        )
        for entry in file.prices
    )
    found = [*problems(prices), *_gaps(file), *_storage_problems(file.storage)]
    if found:
        raise ConfigurationError("\n".join(f"DRIVETRAIN_PRICE_BOOK: {path}: {it}" for it in found))
    storage = sorted(file.storage, key=lambda entry: entry.valid_from)
    return PriceBook(
        prices,
        StoragePrices(
            tuple(
                StoragePrice(each.id, each.valid_from.date(), each.micro_usd_per_gb_month)
                for each in storage
            )
        ),
    )


def _refusal(path: Path, one: FieldError) -> str:
    text = f"{one.field} {one.message}" + (f": {one.fix}" if one.fix else "")
    return f"DRIVETRAIN_PRICE_BOOK: {path}: " + re.sub(r"\.(\d+)\.", r"[\1].", text)


def _gaps(file: _File) -> list[str]:
    """Where a price says when it ends, and the next one begins earlier or later."""
    lines: dict[object, list[tuple[str, _Entry | _Storage]]] = defaultdict(list)
    for number, entry in enumerate(file.prices):
        lines[entry.device_type, entry.pool, entry.capacity].append((f"prices[{number}]", entry))
    for number, storage in enumerate(file.storage):
        lines["storage"].append((f"storage[{number}]", storage))
    found = []
    for line in lines.values():
        line.sort(key=lambda item: item[1].valid_from)
        for (field, price), after in zip(line, [*line[1:], None], strict=True):
            until = price.valid_until
            if until is None:
                continue
            if after is None:
                found.append(
                    f"{field}.valid_until: no price follows {price.id!r}: leave it out, "
                    f"or add a price from {until.isoformat()}"
                )
            elif until != after[1].valid_from:
                kind = "a gap" if until < after[1].valid_from else "an overlap"
                begin = after[1].valid_from.isoformat()
                found.append(
                    f"{field}.valid_until: {kind} between {price.id!r} and {after[1].id!r}: "
                    f"write {begin}, or begin {after[0]} at {until.isoformat()}"
                )
    return found


def _storage_problems(prices: list[_Storage]) -> list[str]:
    found = []
    ids = [price.id for price in prices]
    starts = [price.valid_from for price in prices]
    for number, price in enumerate(prices):
        if price.valid_from.time() != time():
            found.append(
                f"storage[{number}].valid_from: storage is charged by the day: "
                "write a midnight of UTC, such as 2026-01-01T00:00:00Z"
            )
        if ids.index(price.id) != number:
            found.append(f"storage[{number}].id: {price.id!r} is used twice: choose another")
        if starts.index(price.valid_from) != number:
            found.append(f"storage[{number}].valid_from: two prices begin then: write a later day")
    return found
