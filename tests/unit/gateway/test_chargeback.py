"""Lines of a chargeback report as CSV: amounts, months, and cells that are no formulas."""

import csv
import io
import json
from typing import Any

import pytest

from services.gateway.core.chargeback import (
    COLUMNS,
    FOCUS_COLUMNS,
    csv_row,
    focus_row,
    header,
)

HOUR = 3_600_000_000
GB_MONTH = 10**9 * 720 * HOUR
LINE: dict[str, Any] = {
    "day": "2026-01-31",
    "pool": "default",
    "device_type": "h200",
    "kind": "productive",
    "tenant_id": "team",
    "project": None,
    "study_id": None,
    "job_id": "job_a",
    "job_name": "digits",
    "slot_microseconds": 3 * HOUR // 2,
    "byte_microseconds": 0,
    "micro_usd": 1_234_567,
}
STORED = LINE | {"kind": "storage", "job_id": None, "byte_microseconds": GB_MONTH // 4}


def own(**changes: Any) -> dict[str, str]:
    return dict(zip(COLUMNS, *csv.reader(io.StringIO(csv_row(LINE | changes))), strict=True))


def focus(line: dict[str, Any]) -> dict[str, str]:
    return dict(zip(FOCUS_COLUMNS, *csv.reader(io.StringIO(focus_row(line, "us"))), strict=True))


def test_amounts_are_hours_gigabyte_months_and_dollars_with_all_their_digits() -> None:
    row = own(byte_microseconds=GB_MONTH // 4)
    assert (row["slot_hours"], row["gb_months"]) == ("1.500000000", "0.250000000")
    assert (row["cost_usd"], row["capacity"]) == ("1.234567", "")
    assert own(capacity="spot")["capacity"] == "spot"
    assert header(("a", "b")) == "a,b\r\n"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("digits", "digits"),
        ("=1+1", "'=1+1"),
        ("+a", "'+a"),
        ("-a", "'-a"),
        ("@a", "'@a"),
        ("-1.5", "-1.5"),
        ("-1.5.2", "'-1.5.2"),
        (None, ""),
    ],
)
def test_no_cell_is_taken_for_a_formula_and_a_negative_amount_stays_one(
    name: str | None, cell: str
) -> None:
    assert own(job_name=name)["job_name"] == cell


@pytest.mark.parametrize(
    ("day", "next_day", "month", "next_month"),
    [
        ("2026-01-31", "2026-02-01", "2026-01-01", "2026-02-01"),
        ("2026-02-01", "2026-02-02", "2026-02-01", "2026-03-01"),
        ("2026-12-31", "2027-01-01", "2026-12-01", "2027-01-01"),
    ],
)
def test_a_charge_is_of_a_day_and_billed_by_the_month(
    day: str, next_day: str, month: str, next_month: str
) -> None:
    row = focus(LINE | {"day": day})
    names = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")
    days = (day, next_day, month, next_month)
    assert [row[name] for name in names] == [f"{one}T00:00:00Z" for one in days]


def test_slots_are_billed_by_the_hour_and_say_whether_they_are_spot() -> None:
    row = focus(LINE)
    assert (row["ConsumedQuantity"], row["PricingUnit"]) == ("1.500000000", "Hours")
    assert {row[name] for name in ("BilledCost", "ListCost", "EffectiveCost")} == {"1.234567"}
    assert {row[f"{name}UnitPrice"] for name in ("List", "Contracted")} == {"0.823044667"}
    assert focus(LINE | {"slot_microseconds": 0})["ListUnitPrice"] == ""
    assert row["ChargeDescription"] == "productive slots of h200 in default"
    assert (row["PricingCategory"], row["ResourceType"]) == ("Standard", "Job")
    assert json.loads(row["Tags"]) == {
        "kind": "productive",
        "pool": "default",
        "device_type": "h200",
    }
    spot = focus(LINE | {"capacity": "spot", "project": "p"})
    assert spot["ChargeDescription"] == "productive spot slots of h200 in default"
    assert spot["PricingCategory"] == "Dynamic"
    assert json.loads(spot["Tags"])["project"] == "p"


def test_storage_is_billed_by_the_gigabyte_month_and_may_be_nobody_s() -> None:
    row = focus(STORED)
    assert (row["ConsumedQuantity"], row["PricingUnit"]) == ("0.250000000", "GB-Months")
    assert (row["ServiceCategory"], row["ResourceId"], row["ResourceType"]) == ("Storage", "", "")
