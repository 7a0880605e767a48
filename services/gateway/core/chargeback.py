"""The lines of a chargeback report as CSV: with our own columns, or with those of FOCUS 1.0.

FOCUS is the FinOps Open Cost and Usage Specification (https://focus.finops.org). A row is the time
of a day (UTC) in which a job, or nobody, had slots of a pool. Costs are dollars with all their
micro-dollars; there are no discounts, so all costs of a row are the same.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

COLUMNS = (
    "day",
    "pool",
    "device_type",
    "kind",
    "tenant_id",
    "project",
    "study_id",
    "job_id",
    "job_name",
    "slot_hours",
    "gb_months",
    "cost_usd",
    "capacity",
)
FOCUS_COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)
_HOUR_MICROSECONDS = 3_600_000_000
_GB_MONTH = 10**9 * 30 * 24 * _HOUR_MICROSECONDS
# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def header(columns: Iterable[str]) -> str:
    return _row(columns)


def csv_row(line: Mapping[str, Any]) -> str:
    cells = {
        **line,
        "slot_hours": _hours(line["slot_microseconds"]),
        "gb_months": _gb_months(line["byte_microseconds"]),
        "cost_usd": _dollars(line["micro_usd"]),
        "capacity": line.get("capacity"),
    }
    return _row(_cell(cells[name]) for name in COLUMNS)


def focus_row(line: Mapping[str, Any], account: str) -> str:
    """`account`: the platform that bills."""
    cost = _dollars(line["micro_usd"])
    usage = _storage(line) if line["kind"] == "storage" else _slots(line)
    day = date.fromisoformat(line["day"])
    month = day.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    cells = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        **dict.fromkeys(("BillingAccountId", "BillingAccountName"), account),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), "Drivetrain"),
        **usage,
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), _unit_price(cost, usage)),
        **dict.fromkeys(("SubAccountId", "SubAccountName"), line["tenant_id"]),
        "BillingCurrency": "USD",
        "BillingPeriodStart": _midnight(month),
        "BillingPeriodEnd": _midnight(next_month),
        "ChargePeriodStart": _midnight(day),
        "ChargePeriodEnd": _midnight(day + timedelta(days=1)),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeFrequency": "Usage-Based",
        # What FOCUS calls a price that its provider varies, such as that of spot capacity.
        "PricingCategory": "Dynamic" if _is_spot(line) else "Standard",
        "ResourceId": line["job_id"],
        "ResourceName": line["job_name"],
        "ResourceType": "Job" if line["job_id"] else None,
        "Tags": _tags(line),
    }
    return _row(_cell(cells[name]) for name in FOCUS_COLUMNS)


def _slots(line: Mapping[str, Any]) -> dict[str, str]:
    hours = _hours(line["slot_microseconds"])
    return {
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), hours),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), "Hours"),
        "ChargeDescription": (
            f"{line['kind']} {'spot ' if _is_spot(line) else ''}slots of {line['device_type']} "
            f"in {line['pool']}"
        ),
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "Training",
        "SkuId": f"{line['pool']}/{line['device_type']}",
    }


def _unit_price(cost: str, usage: Mapping[str, str]) -> str | None:
    """On average, where a line has time at several prices."""
    quantity = Decimal(usage["PricingQuantity"])
    return f"{Decimal(cost) / quantity:.9f}" if quantity else None


def _is_spot(line: Mapping[str, Any]) -> bool:
    return line.get("capacity") == "spot"


def _storage(line: Mapping[str, Any]) -> dict[str, str]:
    quantity = _gb_months(line["byte_microseconds"])
    return {
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), "GB-Months"),
        "ChargeDescription": "stored checkpoints",
        "ServiceCategory": "Storage",
        "ServiceName": "Checkpoints",
        "SkuId": "checkpoints",
    }


def _tags(line: Mapping[str, Any]) -> str:
    names = ("kind", "pool", "device_type", "project", "study_id")
    return json.dumps({name: line[name] for name in names if line[name]})


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdigit()


def _row(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()


def _dollars(micro_usd: int) -> str:
    return f"{Decimal(micro_usd) / 1_000_000:.6f}"


def _hours(slot_microseconds: int) -> str:
    return f"{Decimal(slot_microseconds) / _HOUR_MICROSECONDS:.9f}"


def _gb_months(byte_microseconds: int) -> str:
    """A gigabyte is 10^9 bytes, a month 30 days, as in the price book."""
    return f"{Decimal(byte_microseconds) / _GB_MONTH:.9f}"


def _midnight(day: date) -> str:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
