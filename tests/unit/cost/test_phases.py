"""What held slots were used for, and that time and money of it add up to the charge."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.cost.core.charges import Usage, charges
from services.cost.core.phases import Phase, RunFacts, by_day_and_phase, parts
from services.cost.core.prices import Price, PriceBook

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
    periods = BOOK.periods(held.pool, held.device_type, held.starts_at, held.ends_at)
    found = by_day_and_phase(held, run, periods)
    time = sum(amount.slot_microseconds for amount in found.values())
    assert time == slots * minutes * 60_000_000
    made = charges(held, BOOK)
    platform = sum(a.micro_usd for key, a in found.items() if key.phase is Phase.PLATFORM)
    assert platform == sum(charge.platform_micro_usd for charge in made)
    paid_sum = sum(a.micro_usd for key, a in found.items() if key.phase is not Phase.PLATFORM)
    assert paid_sum == sum(charge.amount_micro_usd for charge in made)
    assert all(amount.micro_usd >= 0 for amount in found.values())
