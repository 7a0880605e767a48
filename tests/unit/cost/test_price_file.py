"""The price book's file: read whole, or refused in words that name what to mend."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

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
    assert book.price_at("default", "cpu", datetime(2026, 6, 1, tzinfo=UTC)) is not None


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
        pytest.param("[]", "valid dictionary", id="not a mapping"),
        pytest.param(f"prices: [{ENTRY.replace('48', '4.8')}]", "integer", id="a fraction"),
        pytest.param(f"prices: [{ENTRY.replace('48', '-1')}]", "greater", id="less than nothing"),
        pytest.param(f"prices: [{ENTRY.replace('48', '9' * 19)}]", "less than", id="no bigint"),
        pytest.param(f"prices: [{ENTRY.replace('Z', '')}]", "timezone", id="a time of nowhere"),
        pytest.param(f"prices: [{ENTRY}, {ENTRY}]", "is used twice", id="an id twice"),
        pytest.param(f"prices: [{ENTRY}]\nprice: 1", "price", id="a misspelt key"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, want_words: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match="DRIVETRAIN_PRICE_BOOK") as refused:
        read_price_book(path)
    assert want_words in str(refused.value)
