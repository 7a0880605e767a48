"""What is spent per hour now, by class of tenants, and what has no price."""

from datetime import UTC, datetime, timedelta

from prometheus_client import REGISTRY

from services.cost.core.prices import Price, PriceBook
from services.cost.spending import SpendingTask, spending
from services.cost.store import HeldSlots

START = datetime(2026, 1, 1, tzinfo=UTC)
BOOK = PriceBook(
    (Price("p", "h100", START, 2_000_000), Price("q", "h100", START + timedelta(1), 3))
)
CLASSES = {"vision": "research", "speech": "research", "shop": "production"}


def held(tenant_id: str, num_slots: int, device_type: str = "h100") -> HeldSlots:
    return HeldSlots(tenant_id, "gpus", device_type, num_slots)


def test_slots_cost_what_their_price_is_now_under_the_class_of_their_tenant() -> None:
    found = spending([held("vision", 2), held("speech", 1), held("x", 4)], BOOK, CLASSES, START)
    assert found.by_class == {"research": 6_000_000, "production": 0, "default": 8_000_000}
    assert found.unpriced == {}
    later = spending([held("vision", 2)], BOOK, CLASSES, START + timedelta(days=2))
    assert later.by_class["research"] == 6


def test_slots_without_a_price_are_counted() -> None:
    found = spending([held("vision", 2, "tpu"), held("x", 3, "tpu")], BOOK, CLASSES, START)
    assert found.unpriced == {("gpus", "tpu"): 5}
    assert set(found.by_class.values()) == {0}


def test_ten_thousand_tenants_add_no_series() -> None:
    def num_series() -> int:
        return sum(len(metric.samples) for metric in REGISTRY.collect())

    task = SpendingTask(BOOK, CLASSES)
    task.report([held("a", 1)], START)
    before = num_series()
    task.report([held(f"tenant-{it}", 1) for it in range(10_000)], START)
    assert num_series() == before
    name = "drivetrain_cost_spend_usd_per_hour"
    assert REGISTRY.get_sample_value(name, {"tenant_class": "default"}) == 20_000


def test_spot_slots_cost_what_spot_costs() -> None:
    book = PriceBook((*BOOK.prices, Price("s", "h100", START, 500_000, is_spot=True)))
    some = [held("x", 2), HeldSlots("x", "gpus", "h100", 4, is_spot=True)]
    assert spending(some, book, CLASSES, START).by_class["default"] == 6_000_000
