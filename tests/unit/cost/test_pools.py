"""The shares of a pool's day add up to what its nodes offered."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from services.cost.core.phases import Amount
from services.cost.core.pools import (
    Offer,
    PoolTime,
    Row,
    of_tenant,
    offered,
    rows,
    unoffered,
    unoffered_shares,
)
from services.cost.core.prices import Price, PriceBook, SlotKind
from services.cost.core.steps import Step, Steps, days

DAY = date(2026, 2, 1)
KEY = PoolTime.of_day(DAY, "default", "gpu")
MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
KIND = SlotKind("default", "gpu")
BOOK = PriceBook((Price("p", "gpu", MIDNIGHT - timedelta(days=30), 2_500_001),))


def test_an_offer_is_cut_at_midnight_and_adds_up() -> None:
    offer = Offer("default", "gpu", 3, MIDNIGHT - timedelta(hours=1), MIDNIGHT + timedelta(hours=2))
    found = offered([offer], BOOK, Steps(Step.DAY))
    assert [key.day for key in found] == [date(2026, 1, 31), DAY]
    assert sum(amount.slot_microseconds for amount in found.values()) == 3 * 3 * 3_600_000_000
    assert sum(amount.micro_usd for amount in found.values()) == 3 * 3 * 2_500_001


def test_hours_add_up_to_the_day_and_no_day_depends_on_the_others() -> None:
    offer = Offer("default", "gpu", 3, MIDNIGHT - timedelta(days=2), MIDNIGHT + timedelta(days=2))
    found = offered([offer], BOOK, Steps(Step.DAY))
    hours = offered([replace(offer, starts_at=MIDNIGHT)], BOOK, days(DAY, DAY, Step.HOUR))
    assert len(hours) == 24
    assert sum(amount.micro_usd for amount in hours.values()) == found[KEY].micro_usd
    assert {amount.slot_microseconds for amount in hours.values()} == {3 * 3_600_000_000}
    assert offered([replace(offer, starts_at=MIDNIGHT)], BOOK, days(DAY, DAY)) == {KEY: found[KEY]}


def test_each_day_is_rounded_on_its_own() -> None:
    half = timedelta(minutes=30)  # at 1 an hour: 0.5, to even
    book = PriceBook((Price("p", "gpu", MIDNIGHT - timedelta(days=30), 1),))
    offer = Offer("default", "gpu", 1, MIDNIGHT - half, MIDNIGHT + half)
    found = offered([offer], book, Steps(Step.HOUR))
    assert [amount.micro_usd for amount in found.values()] == [0, 0]
    hours = offered([replace(offer, ends_at=MIDNIGHT + 5 * half)], book, Steps(Step.HOUR))
    assert [amount.micro_usd for amount in hours.values()] == [0, 1, 1, 0]


def test_time_without_an_offer_is_no_step() -> None:
    hour = timedelta(hours=1)
    offer = Offer("default", "gpu", 1, MIDNIGHT, MIDNIGHT + hour)
    later = replace(offer, starts_at=MIDNIGHT + 2 * hour, ends_at=MIDNIGHT + 3 * hour)
    found = offered([offer, later], BOOK, Steps(Step.HOUR))
    assert [key.starts_at.hour for key in found] == [0, 2]


def test_nodes_of_a_pool_are_added_and_capacities_priced_apart() -> None:
    hour = timedelta(hours=1)
    book = PriceBook(
        (
            Price("p", "gpu", MIDNIGHT - hour, 10),
            Price("q", "gpu", MIDNIGHT + hour, 30),
            Price("s", "gpu", MIDNIGHT, 1, is_spot=True),
        )
    )
    offers = [
        Offer("default", "gpu", 2, MIDNIGHT, MIDNIGHT + 3 * hour),
        Offer("default", "gpu", 1, MIDNIGHT + hour, MIDNIGHT + 2 * hour),
        Offer("default", "gpu", 5, MIDNIGHT, MIDNIGHT + hour, is_spot=True),
    ]
    found = offered(offers, book, Steps(Step.HOUR))
    assert {key.starts_at - MIDNIGHT: amount.micro_usd for key, amount in found.items()} == {
        0 * hour: 2 * 10 + 5 * 1,
        1 * hour: 3 * 30,
        2 * hour: 2 * 30,
    }
    beyond = list(
        unoffered_shares(
            offers[1:2], book.periods(KIND, MIDNIGHT, MIDNIGHT + 3 * hour), Steps(Step.HOUR)
        )
    )
    assert beyond == [(MIDNIGHT + hour, "unoffered", 3_600_000_000, 30)]


def test_what_was_held_beyond_the_offer_is_no_share_and_makes_the_rest_larger() -> None:
    held = [Row(KEY, "productive", "vision", 120, 1_200), Row(KEY, "unoffered", "", 40, 450)]
    assert rows({KEY: Amount(100, 1_000)}, held) == (held[0], Row(KEY, "idle", "", 20, 250))


def test_the_rest_is_idle_and_the_sum_is_exact() -> None:
    held = [Row(KEY, "productive", "vision", 60, 601), Row(KEY, "lost", "speech", 30, 299)]
    found = rows({KEY: Amount(100, 1_000)}, held)
    assert [(row.kind, row.tenant_id) for row in found] == [
        ("lost", "speech"),
        ("productive", "vision"),
        ("idle", ""),
    ]
    assert sum(row.slot_microseconds for row in found) == 100
    assert sum(row.micro_usd for row in found) == 1_000


def test_a_tenant_sees_what_the_others_had_as_one_share() -> None:
    held = [
        Row(KEY, "productive", "vision", 60, 600),
        Row(KEY, "productive", "speech", 20, 200),
        Row(KEY, "productive", "audio", 10, 100),
        Row(KEY, "idle", "", 10, 100),
    ]
    assert of_tenant(held, "vision") == (
        held[0],
        Row(KEY, "productive", "others", 30, 300),
        held[3],
    )


def test_a_day_without_runs_is_idle() -> None:
    (row,) = rows({KEY: Amount(100, 1_000)}, [])
    assert (row.kind, row.slot_microseconds, row.micro_usd) == ("idle", 100, 1_000)


def test_a_full_day_has_no_idle_row() -> None:
    held = [Row(KEY, "productive", "vision", 100, 1_000)]
    assert rows({KEY: Amount(100, 1_000)}, held) == tuple(held)


def test_idle_takes_what_the_shares_were_rounded_by() -> None:
    held = [Row(KEY, "productive", "vision", 100, 1_001)]
    assert rows({KEY: Amount(100, 1_000)}, held) == (*held, Row(KEY, "idle", "", 0, -1))


def test_idle_time_costs_no_less_than_nothing_when_a_past_price_is_changed() -> None:
    """What was held was charged at ten times, or a tenth of, today's price."""
    half = [Row(KEY, "productive", "vision", 50, 500_000)]
    assert rows({KEY: Amount(100, 100_000)}, half) == (*half, Row(KEY, "idle", "", 50, 0))
    for charged in (1_000_000, 10_000):
        full = [Row(KEY, "productive", "vision", 100, charged)]
        assert rows({KEY: Amount(100, 100_000)}, full) == tuple(full)


def test_a_node_that_lost_slots_offers_what_is_held() -> None:
    held = [Row(KEY, "productive", "vision", 120, 1_200)]
    assert rows({KEY: Amount(100, 1_000)}, held) == tuple(held)


def test_what_was_held_beyond_the_offers_of_a_node() -> None:
    def of(num_slots: int, first: int, last: int) -> Offer:
        hour = timedelta(hours=1)
        return Offer("default", "gpu", num_slots, MIDNIGHT + first * hour, MIDNIGHT + last * hour)

    held = of(4, 0, 10)
    assert list(unoffered(held, range(4), [of(4, -1, 11)])) == []
    assert list(unoffered(held, range(4), [of(8, 0, 3), of(2, 3, 6)])) == [
        of(2, 3, 6),
        of(4, 6, 10),
    ]
    assert list(unoffered(held, range(4), [of(4, 2, 3), of(4, 20, 30)])) == [
        of(4, 0, 2),
        of(4, 3, 10),
    ]
    assert list(unoffered(held, range(4), [])) == [held]
    assert list(unoffered(held, range(4), [of(2, -5, 0), of(3, 8, 12)])) == [
        of(4, 0, 8),
        of(1, 8, 10),
    ]
    assert list(unoffered(held, range(4), [of(2, -1, 5)])) == [of(2, 0, 5), of(4, 5, 10)]
    # The other slots of the node are another allocation's.
    assert list(unoffered(held, range(4, 8), [of(6, 0, 20)])) == [of(2, 0, 10)]
