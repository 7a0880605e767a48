"""A charge without a price is replaced once there is one; what is reversed adds up to nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.ids import charge_id_for
from services.cost.core.charges import charge_id_of
from services.cost.core.corrections import replacement, reprice, reversal
from services.cost.core.prices import Price, PriceBook

START = datetime(2026, 2, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB = "a" * 26
ALLOCATION = f"alloc_{JOB}_1"


def unpriced(**fields: Any) -> ChargeRecorded:
    values: dict[str, Any] = {
        "charge_id": charge_id_for(ALLOCATION, "unpriced"),
        "tenant_id": "vision",
        "job_id": f"job_{JOB}",
        "run_id": f"run_{JOB}_1",
        "attempt": 1,
        "allocation_id": ALLOCATION,
        "pool": "default",
        "device_type": "gpu",
        "num_slots": 2,
        "starts_at": START,
        "ends_at": START + 3 * HOUR,
        "price_id": "unpriced",
        "price_micro_usd_per_slot_hour": 0,
        "amount_micro_usd": 0,
    }
    return ChargeRecorded(**(values | fields))


def test_it_is_charged_at_the_prices_that_have_become_known() -> None:
    charge = unpriced(platform_ends_at=START + 4 * HOUR, platform_micro_usd=0)
    book = PriceBook((Price("p", "gpu", START - HOUR, 100), Price("q", "gpu", START + HOUR, 300)))
    new = [replacement(charge, each) for each in reprice(charge, 4, book)]
    assert [(it.price_id, it.starts_at, it.ends_at, it.amount_micro_usd) for it in new] == [
        ("p", START, START + HOUR, 200),
        ("q", START + HOUR, START + 3 * HOUR, 1_200),
    ]
    assert [(it.platform_ends_at, it.platform_micro_usd) for it in new] == [
        (None, None),
        (START + 4 * HOUR, 600),
    ]
    assert [it.charge_id for it in new] == [charge_id_of(ALLOCATION, it, False, 5) for it in "pq"]


def test_time_of_the_platform_alone_is_nothing_to_add() -> None:
    (new,) = reprice(unpriced(), 0, PriceBook((Price("p", "gpu", START, 100),)))
    assert (new.period.ends_at, new.platform_micro_usd) == (START + 3 * HOUR, 0)


def test_a_price_for_a_part_leaves_the_rest_unpriced() -> None:
    book = PriceBook((Price("p", "gpu", START + HOUR, 100),))
    assert [it.period.price_id for it in reprice(unpriced(), 0, book)] == ["unpriced", "p"]


def test_without_a_fitting_price_there_is_no_replacement() -> None:
    book = PriceBook((Price("p", "gpu", START + 3 * HOUR, 1), Price("q", "cpu", START, 1)))
    assert reprice(unpriced(), 0, book) == ()


def test_a_reversal_takes_back_what_was_charged_and_the_platforms_part() -> None:
    charge = unpriced(amount_micro_usd=70, platform_ends_at=START + 4 * HOUR, platform_micro_usd=30)
    back = reversal(charge)
    assert (back.amount_micro_usd, back.platform_micro_usd) == (-70, -30)
    assert (back.reverses_charge_id, back.num_slots) == (charge.charge_id, 2)
    assert back.charge_id != charge.charge_id
    assert reversal(unpriced()).platform_micro_usd is None
