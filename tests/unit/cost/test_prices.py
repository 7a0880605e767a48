"""Which price holds when."""

from datetime import UTC, datetime

import pytest

from services.cost.core.prices import Price, PriceBook, SlotKind, problems

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
MAY = datetime(2026, 5, 1, tzinfo=UTC)

BOOK = PriceBook(
    (
        Price("new", "a100", MARCH, 300),
        Price("old", "a100", JANUARY, 200),
        Price("special", "a100", JANUARY, 100, pool="research"),
    )
)


@pytest.mark.parametrize(
    ("pool", "moment", "want_price"),
    [
        pytest.param("default", JANUARY, "old", id="the first moment belongs to the price"),
        pytest.param("default", MARCH, "new", id="a price ends where the next begins"),
        pytest.param("research", MAY, "special", id="the pool's own price goes first"),
    ],
)
def test_price_at(pool: str, moment: datetime, want_price: str) -> None:
    price = BOOK.price_at(SlotKind(pool, "a100"), moment)
    assert price is not None
    assert price.price_id == want_price


def test_there_may_be_no_price() -> None:
    assert BOOK.price_at(SlotKind("default", "h100"), MAY) is None
    assert BOOK.price_at(SlotKind("default", "a100"), datetime(2025, 1, 1, tzinfo=UTC)) is None


def test_an_interval_is_cut_where_the_price_changes() -> None:
    periods = BOOK.periods(SlotKind("default", "a100"), JANUARY, MAY)
    assert [(item.starts_at, item.ends_at, item.price_id) for item in periods] == [
        (JANUARY, MARCH, "old"),
        (MARCH, MAY, "new"),
    ]


def test_time_before_any_price_is_seen() -> None:
    periods = BOOK.periods(SlotKind("default", "a100"), datetime(2025, 12, 1, tzinfo=UTC), MARCH)
    assert [item.price_id for item in periods] == ["unpriced", "old"]
    assert periods[0].micro_usd_per_slot_hour == 0


def test_the_prices_for_all_hold_until_the_pool_has_its_own() -> None:
    book = PriceBook((Price("general", "a100", JANUARY, 200), Price("own", "a100", MAY, 1, "lab")))
    price = book.price_at(SlotKind("lab", "a100"), MARCH)
    assert price is not None
    assert price.price_id == "general"


def test_a_price_for_all_that_changes_does_not_cut_what_the_pool_pays() -> None:
    periods = BOOK.periods(SlotKind("research", "a100"), JANUARY, MAY)
    assert [(item.starts_at, item.ends_at, item.price_id) for item in periods] == [
        (JANUARY, MAY, "special")
    ]


def test_an_interval_without_length_has_no_period() -> None:
    kind = SlotKind("default", "a100")
    assert BOOK.periods(kind, MARCH, MARCH) == BOOK.periods(kind, MAY, MARCH) == ()


def test_a_price_that_changes_at_an_end_of_the_interval_does_not_cut_it() -> None:
    kind = SlotKind("default", "a100")
    assert [it.price_id for it in BOOK.periods(kind, JANUARY, MARCH)] == ["old"]
    assert [it.price_id for it in BOOK.periods(kind, MARCH, MAY)] == ["new"]


def test_problems_of_a_price_book_are_named() -> None:
    found = problems(
        (
            Price("a", "cpu", JANUARY, 1),
            Price("a", "gpu", JANUARY, 1),
            Price("b", "cpu", JANUARY, 2),
            Price("unpriced", "tpu", JANUARY, 2),
        )
    )
    assert len(found) == 3
    assert "'a' is used twice" in found[0]
    assert "reserved" in found[1]
    assert "two prices of cpu" in found[2]


def test_a_price_of_the_capacity_has_precedence_and_one_of_the_pool_before_it() -> None:
    book = PriceBook(
        (
            Price("all", "a100", JANUARY, 300),
            Price("spot", "a100", JANUARY, 100, is_spot=True),
            Price("lab", "a100", JANUARY, 50, pool="lab"),
            Price("late", "a100", MARCH, 200, is_spot=False),
        )
    )

    def price_id(moment: datetime, pool: str, is_spot: bool) -> str:
        price = book.price_at(SlotKind(pool, "a100", is_spot), moment)
        assert price is not None
        return price.price_id

    assert price_id(JANUARY, "default", False) == "all"
    assert price_id(JANUARY, "default", True) == "spot"
    assert price_id(MARCH, "default", True) == "spot"
    assert price_id(MARCH, "default", False) == "late"
    assert price_id(MARCH, "lab", True) == price_id(MARCH, "lab", False) == "lab"


def test_prices_of_two_capacities_may_begin_together() -> None:
    both = (Price("a", "cpu", JANUARY, 2), Price("b", "cpu", JANUARY, 1, is_spot=True))
    assert problems(both) == []
    (found,) = problems((*both, Price("c", "cpu", JANUARY, 3, is_spot=True)))
    assert "two prices of cpu (all pools, spot)" in found
