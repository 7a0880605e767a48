"""The price book's file: read whole, or refused in words that name what to mend."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from services.cost.core.prices import SlotKind
from services.cost.price_file import read_price_book
from services.cost.settings import CostSettings
from services.runtime.errors import ConfigurationError

ENTRY = "{id: a, device_type: cpu, valid_from: 2026-01-01T00:00:00Z, micro_usd_per_slot_hour: 48}"


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text(text)
    return path


def test_the_price_book_that_comes_with_the_service_is_sound() -> None:
    book = read_price_book(CostSettings.model_fields["price_book"].default)
    assert book.price_at(SlotKind("default", "cpu"), datetime(2026, 6, 1, tzinfo=UTC)) is not None


def test_times_are_kept_in_utc(tmp_path: Path) -> None:
    path = written(tmp_path, f"prices: [{ENTRY.replace('00:00:00Z', '02:00:00+02:00')}]")
    (price,) = read_price_book(path).prices
    assert price.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert price.valid_from.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "want_words"),
    [
        pytest.param("prices: [", "expected", id="not YAML"),
        pytest.param("\udcff", "", id="not text"),
        pytest.param("[]", "is not a mapping", id="not a mapping"),
        pytest.param(
            f"prices: [{ENTRY.replace('48', '4.8')}]",
            "prices[0].micro_usd_per_slot_hour is not a whole number",
            id="a fraction",
        ),
        pytest.param(
            f"prices: [{ENTRY.replace('48', '-1')}]", "write 0 or more", id="less than nothing"
        ),
        pytest.param(
            f"prices: [{ENTRY.replace('48', '9' * 19)}]",
            "write 10000000000 or less",
            id="no bigint",
        ),
        pytest.param(
            f"prices: [{ENTRY.replace('Z', '')}]",
            "prices[0].valid_from has no time zone: write a time such as",
            id="a time of nowhere",
        ),
        pytest.param(
            f"prices: [{ENTRY.replace('2026-01-01T00:00:00Z', 'May')}]",
            "is not a time",
            id="no time",
        ),
        pytest.param(
            f"prices: [{ENTRY.replace('cpu', 'cpu, capacity: sput')}]",
            "write 'spot' or 'on_demand'",
            id="a misspelt capacity",
        ),
        pytest.param(f"prices: [{ENTRY}, {ENTRY}]", "is used twice", id="an id twice"),
        pytest.param(f"prices: [{ENTRY}]\nprice: 1", "price", id="a misspelt key"),
        pytest.param(f"prices: [{ENTRY}]\nprices: []", "given twice", id="a key twice"),
        pytest.param(
            f"prices: [{ENTRY.replace('2026-01-01T00:00:00Z', '0001-01-01T00:00:00+01:00')}]",
            "write a time in UTC",
            id="no time of UTC",
        ),
        pytest.param(f"prices: [{ENTRY.replace('cpu', chr(39) * 2)}]", "device_type", id="no name"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, want_words: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match="DRIVETRAIN_PRICE_BOOK") as refused:
        read_price_book(path)
    assert want_words in str(refused.value)


def entries(*prices: tuple[str, str | None]) -> str:
    """A book of prices that begin and end then."""
    lines = []
    for number, (begin, end) in enumerate(prices):
        until = f", valid_until: {end}T00:00:00Z" if end else ""
        lines.append(
            f"  - {{id: p{number}, device_type: gpu, valid_from: {begin}T00:00:00Z{until}, "
            "micro_usd_per_slot_hour: 1}"
        )
    return "\n".join(["prices:", *lines])


def test_prices_that_follow_each_other_are_read(tmp_path: Path) -> None:
    prices = (("2026-02-01", "2026-03-01"), ("2026-01-01", "2026-02-01"), ("2026-03-01", None))
    path = written(tmp_path, entries(*prices))
    assert len(read_price_book(path).prices) == 3


@pytest.mark.parametrize(
    ("prices", "field", "fix"),
    [
        ([("2026-01-01", "2026-02-01"), ("2026-02-02", None)], "a gap", "write 2026-02-02"),
        ([("2026-01-01", "2026-02-02"), ("2026-02-01", None)], "an overlap", "write 2026-02-01"),
        ([("2026-01-01", "2026-02-02")], "no price follows", "leave it out"),
    ],
)
def test_gaps_and_overlaps_are_refused(
    tmp_path: Path, prices: list[tuple[str, str | None]], field: str, fix: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_price_book(written(tmp_path, entries(*prices)))
    text = str(refused.value)
    assert "prices[0].valid_until" in text
    assert field in text
    assert fix in text


def storage(*lines: str) -> str:
    return "\n".join([f"prices: [{ENTRY}]", "storage:", *(f"  - {{{line}}}" for line in lines)])


def test_storage_has_prices_from_a_day_on(tmp_path: Path) -> None:
    later = "id: b, valid_from: 2026-02-01T00:00:00Z, micro_usd_per_gb_month: 2"
    first = "id: a, valid_from: 2026-01-01T02:00:00+02:00, micro_usd_per_gb_month: 1"
    book = read_price_book(written(tmp_path, storage(later, first)))
    days = (date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 31), date(2026, 2, 1))
    found = [book.storage.on(day) for day in days]
    assert [price and price.price_id for price in found] == [None, "a", "a", "b"]


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        (["id: a, valid_from: 2026-01-01T01:00:00Z, micro_usd_per_gb_month: 1"], "a midnight"),
        (["id: a, valid_from: 2026-01-01T00:00:00Z, micro_usd_per_gb_month: 1"] * 2, "used twice"),
    ],
)
def test_wrong_prices_of_storage_are_refused(tmp_path: Path, lines: list[str], want: str) -> None:
    with pytest.raises(ConfigurationError, match=r"storage\[") as refused:
        read_price_book(written(tmp_path, storage(*lines)))
    assert want in str(refused.value)


def test_spot_and_on_demand_have_prices_of_their_own(tmp_path: Path) -> None:
    spot = ENTRY.replace("id: a", "id: b, capacity: spot").replace("48", "12")
    until = ENTRY.replace(
        "{id: a", "{id: c, valid_until: 2027-01-01T00:00:00Z, capacity: on_demand"
    )
    last = ENTRY.replace("id: a", "id: d, capacity: on_demand").replace("2026", "2027")
    book = read_price_book(written(tmp_path, f"prices: [{ENTRY}, {spot}, {until}, {last}]"))
    assert [price.is_spot for price in book.prices] == [None, True, False, False]
    with pytest.raises(ConfigurationError, match="on_demand"):
        read_price_book(written(tmp_path, f"prices: [{ENTRY}, {spot.replace('spot', 'cheap')}]"))


def test_a_misspelt_field_is_one_mistake(tmp_path: Path) -> None:
    path = written(tmp_path, f"prices: [{ENTRY.replace('per_slot_hour', 'per_slothour')}]")
    with pytest.raises(ConfigurationError) as refused:
        read_price_book(path)
    (line,) = str(refused.value).splitlines()
    assert line.endswith(
        "prices[0].micro_usd_per_slothour is not a known field: "
        "did you mean prices[0].micro_usd_per_slot_hour?"
    )
