"""The Prometheus metrics of the cost service."""

from prometheus_client import Counter

CHARGED = Counter(
    "drivetrain_cost_charged_usd_total", "Money charged, in dollars.", ["pool", "device_type"]
)
UNPRICED_CHARGES = Counter(
    "drivetrain_cost_unpriced_charges_total",
    "Charges for usage that no price covers.",
    ["pool", "device_type"],
)
