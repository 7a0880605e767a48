"""Who had the slots of a pool, or what they were used for: it adds up to what was offered."""

from datetime import UTC, datetime, timedelta

import pytest

from services.cost.core.fleet import By, Holder, Of, View, series
from services.cost.core.phases import Amount
from services.cost.core.pools import PoolTime

FIRST = datetime(2026, 2, 1, tzinfo=UTC)
SECOND = FIRST + timedelta(hours=1)
WHOLE = {
    PoolTime(FIRST, "a", "gpu"): Amount(100, 1_000),
    PoolTime(SECOND, "a", "gpu"): Amount(50, 9),
}


def who(holder: str, tenant_id: str = "vision", pool: str = "a") -> Holder:
    return Holder(pool, "gpu", tenant_id, holder)


@pytest.mark.parametrize(
    ("by", "holder", "kind", "want"),
    [
        (By.USE, who("job"), "productive", Of("a", "gpu", "productive")),
        (By.JOB, who("job"), "productive", Of("a", "gpu", "held", "job")),
        (By.JOB, who("small"), "productive", Of("a", "gpu", "others")),
        (By.JOB, who("job", "speech"), "productive", Of("a", "gpu", "others")),
        (By.JOB, who("job"), "platform", Of("a", "gpu", "platform")),
        (By.JOB, who("job"), "unoffered", Of("a", "gpu", "unoffered")),
    ],
)
def test_a_tenant_sees_its_own_largest_holders_by_name(
    by: By, holder: Holder, kind: str, want: Of
) -> None:
    assert View(by, "vision", ("job",)).of(holder, kind) == want


def test_uses_and_idle_add_up_to_the_offer() -> None:
    points = {
        (FIRST, "productive"): Amount(60, 600),
        (FIRST, "lost"): Amount(10, 100),
        (SECOND, "productive"): Amount(50, 9),
    }
    more = {(FIRST, "productive"): Amount(5, 50)}
    found = series(WHOLE, [(who("x"), points), (who("y"), more)], View(By.USE, "vision"))
    assert found == [
        (Of("a", "gpu", "productive"), {FIRST: Amount(65, 650), SECOND: Amount(50, 9)}),
        (Of("a", "gpu", "lost"), {FIRST: Amount(10, 100)}),
        (Of("a", "gpu", "idle"), {FIRST: Amount(25, 250)}),
    ]


def test_a_pool_without_idle_slots_has_no_such_series() -> None:
    points = {(FIRST, "productive"): Amount(100, 1_000), (SECOND, "productive"): Amount(50, 9)}
    found = series(WHOLE, [(who("x"), points)], View(By.USE, "vision"))
    assert [of.kind for of, _ in found] == ["productive"]


def test_what_was_held_beyond_the_offer_makes_it_larger() -> None:
    points = {(FIRST, "productive"): Amount(130, 1_300), (FIRST, "unoffered"): Amount(40, 400)}
    found = dict(series(WHOLE, [(who("x"), points)], View(By.USE, "vision")))
    assert found[Of("a", "gpu", "idle")] == {FIRST: Amount(10, 100), SECOND: Amount(50, 9)}


def test_the_largest_holder_comes_first_then_others_the_platform_and_idle() -> None:
    held = [
        (who("small"), {(FIRST, "productive"): Amount(5, 50), (FIRST, "platform"): Amount(1, 10)}),
        (who("large"), {(FIRST, "productive"): Amount(20, 200), (SECOND, "lost"): Amount(5, 1)}),
        (who("b"), {(FIRST, "productive"): Amount(5, 50)}),
        (who("large", "speech"), {(FIRST, "productive"): Amount(40, 400)}),
        (who("x", pool="0"), {(FIRST, "productive"): Amount(7, 70)}),
    ]
    found = series(WHOLE, held, View(By.JOB, "vision", ("small", "large", "b")))
    assert [(of.pool, of.kind, of.holder) for of, _ in found] == [
        ("0", "others", ""),
        ("a", "held", "large"),
        ("a", "held", "b"),
        ("a", "held", "small"),
        ("a", "others", ""),
        ("a", "platform", ""),
        ("a", "idle", ""),
    ]
    assert dict(found)[Of("a", "gpu", "held", "large")] == {
        FIRST: Amount(20, 200),
        SECOND: Amount(5, 1),
    }
