"""What held slots were used for, and that time and money of it add up to the charge."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cost.core.charges import HOUR_MICROSECONDS, Usage, charges
from services.cost.core.phases import Amount, Phase, RunFacts, parts, shares
from services.cost.core.prices import Price, PriceBook
from services.cost.core.steps import Step, Steps, days, midnight

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BOOK = PriceBook(
    (
        Price("old", "gpu", NOON - timedelta(days=30), 2_500_001),
        Price("new", "gpu", NOON + timedelta(hours=7, microseconds=3), 3_333_333),
    )
)


def usage(minutes: int, paid: int | None = None, slots: int = 2) -> Usage:
    end = NOON + minutes * MINUTE
    paid_end = end if paid is None else NOON + paid * MINUTE
    return Usage("alloc", "default", "gpu", slots, NOON, paid_end, end)


def lengths(held: Usage, run: RunFacts) -> dict[Phase, int]:
    return {part.phase: (part.ends_at - part.starts_at) // MINUTE for part in parts(held, run)}


def test_a_run_that_succeeds_loses_nothing() -> None:
    run = RunFacts(NOON + MINUTE, None, 2 * MINUTE)
    assert lengths(usage(60, paid=59), run) == {
        Phase.STARTING: 1,
        Phase.PRODUCTIVE: 56,
        Phase.CHECKPOINTING: 2,
        Phase.PLATFORM: 1,
    }


def test_what_came_after_the_last_checkpoint_is_lost() -> None:
    run = RunFacts(NOON + MINUTE, NOON + 40 * MINUTE, 2 * MINUTE)
    assert lengths(usage(60), run) == {
        Phase.STARTING: 1,
        Phase.PRODUCTIVE: 37,
        Phase.CHECKPOINTING: 2,
        Phase.LOST: 20,
    }


def test_without_a_checkpoint_all_since_the_start_is_lost() -> None:
    run = RunFacts(NOON + MINUTE, NOON + MINUTE)
    assert lengths(usage(60), run) == {Phase.STARTING: 1, Phase.LOST: 59}


def test_a_run_that_never_started_was_starting() -> None:
    assert lengths(usage(5), RunFacts()) == {Phase.STARTING: 5}


def test_a_checkpoint_that_was_verified_after_the_end_loses_nothing() -> None:
    run = RunFacts(NOON, NOON + 61 * MINUTE)
    assert lengths(usage(60), run) == {Phase.PRODUCTIVE: 60}


def test_the_paid_part_and_the_platforms_part_are_rounded_apart() -> None:
    book = PriceBook((Price("p", "gpu", NOON, 1),))
    held = usage(180, paid=90, slots=1)  # 1.5 and 1.5: each is 2
    run = RunFacts(NOON + 30 * MINUTE)  # 0.5 is 0, and the rest of 1.5 is 2
    periods = book.periods(held.kind, held.starts_at, held.ends_at)
    found = [(phase, money) for _, phase, _, money in shares(held, run, periods, Steps(Step.DAY))]
    assert found == [("starting", 0), ("productive", 2), ("platform", 2)]
    short = usage(120, paid=90, slots=1)
    found = [(phase, money) for _, phase, _, money in shares(short, run, periods, Steps(Step.DAY))]
    assert found == [("starting", 0), ("productive", 2), ("platform", 0)]


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        (Amount(1, 0), True),
        (Amount(0, 0), False),
        (Amount(0, 1), True),
        (Amount(0, -1), True),
        (Amount(-1, 5), False),
    ],
)
def test_time_is_idle_or_what_the_shares_were_rounded_by(amount: Amount, want: bool) -> None:
    assert amount.idle == (amount if want else None)


moments = st.one_of(st.none(), st.integers(-60, 4_000).map(lambda n: NOON + n * MINUTE))


@given(
    minutes=st.integers(0, 3_000),
    paid=st.integers(0, 3_000),
    slots=st.integers(1, 9),
    started=moments,
    kept=moments,
    blocked=st.integers(0, 5_000),
)
def test_time_and_money_add_up_to_the_charges(
    minutes: int,
    paid: int,
    slots: int,
    started: datetime | None,
    kept: datetime | None,
    blocked: int,
) -> None:
    held = usage(minutes, min(paid, minutes), slots)
    run = RunFacts(started, kept, blocked * MINUTE)
    found = by_step(held, run, Steps(Step.DAY))
    time = sum(slot_time for slot_time, _ in found.values())
    assert time == slots * minutes * 60_000_000
    made = charges(held, BOOK)
    platform = sum(money for (_, phase), (_, money) in found.items() if phase == Phase.PLATFORM)
    assert platform == sum(charge.platform_micro_usd for charge in made)
    paid_sum = sum(money for (_, phase), (_, money) in found.items() if phase != Phase.PLATFORM)
    assert paid_sum == sum(charge.amount_micro_usd for charge in made)
    assert all(money >= 0 for _, money in found.values())
    # The hours of each day add up to it, also where only some days are looked at.
    hours: Counter[Any] = Counter()
    second = (NOON + timedelta(days=1)).date()
    for day in (NOON.date(), second):
        for (begin, phase), (slot_time, money) in by_step(
            held, run, days(day, day, Step.HOUR)
        ).items():
            assert slot_time <= slots * HOUR_MICROSECONDS
            hours[midnight(begin.date()), phase, "time"] += slot_time
            hours[midnight(begin.date()), phase, "money"] += money
    of_days: Counter[Any] = Counter()
    for (begin, phase), (slot_time, money) in found.items():
        if begin.date() <= second:
            of_days[begin, phase, "time"] += slot_time
            of_days[begin, phase, "money"] += money
    assert hours == of_days


def by_step(
    held: Usage, run: RunFacts, steps: Steps
) -> dict[tuple[datetime, str], tuple[int, int]]:
    """Time and money."""
    periods = BOOK.periods(held.kind, held.starts_at, held.ends_at)
    found: dict[tuple[datetime, str], tuple[int, int]] = {}
    for begin, phase, slot_time, money in shares(held, run, periods, steps):
        known = found.get((begin, phase), (0, 0))
        found[begin, phase] = (known[0] + slot_time, known[1] + money)
    return found
