"""The ledger's ground truth: exact, and it notices a micro-dollar."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks import ledger
from services.cost.core import charges


def test_the_charges_are_the_truth() -> None:
    found = ledger.compare(3_000, seed=7)
    assert found.difference == 0
    assert found.num_charges > 3_000


def test_other_rounding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = charges.amount_micro_usd
    monkeypatch.setattr(charges, "amount_micro_usd", lambda *usage: exact(*usage) + 1)
    found = ledger.compare(10, seed=7)
    assert found.difference == 2 * found.num_charges


@pytest.mark.parametrize("price", [1, 48_001, 9_999_991, 1_800_000_000])
def test_a_product_beyond_64_bits_is_rounded_half_to_even(price: int) -> None:
    for slots, microseconds in ((1, 1), (1, 3), (1024, 10 * ledger.DAY + 1), (3, ledger.HOUR // 2)):
        (amount,) = ledger.money(np.array([slots]), np.array([microseconds]), price)
        assert amount == round(Fraction(slots * microseconds * price, ledger.HOUR))
