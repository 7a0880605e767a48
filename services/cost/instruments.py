"""The Prometheus metrics of the cost service."""

from prometheus_client import Counter, Gauge, Histogram

CHARGED = Counter(
    "drivetrain_cost_charged_usd_total", "Money charged, in dollars.", ["pool", "device_type"]
)
PLATFORM_COST = Counter(
    "drivetrain_cost_platform_usd_total",
    "The platform's own cost of slots between the end of their pods and their release.",
    ["pool", "device_type"],
)
SPEND = Gauge(
    "drivetrain_cost_spend_usd_per_hour",
    "What the slots held now cost per hour, by class of tenants.",
    ["tenant_class"],
)
UNPRICED_DEVICES = Gauge(
    "drivetrain_cost_unpriced_devices",
    "Slots held now for which there is no price.",
    ["pool", "device_type"],
)
UNRELEASED = Gauge(
    "drivetrain_cost_unreleased_allocations",
    "Allocations that are over for ten minutes, and whose release was not read.",
)
REPRICED = Counter(
    "drivetrain_cost_repriced_charges_total",
    "Charges without a price that were replaced once a price was known.",
)
UNPRICED_CHARGES = Counter(
    "drivetrain_cost_unpriced_charges_total",
    "Charges for usage that no price covers.",
    ["pool", "device_type"],
)
SHARED = Counter(
    "drivetrain_cost_allocations_shared_total",
    "Released allocations that were added to the shares of their pool's days.",
)
STORAGE_CHARGED = Counter(
    "drivetrain_cost_storage_charged_usd_total", "Money charged for stored checkpoints, in dollars."
)
LOW_USE = Counter(
    "drivetrain_cost_low_use_total",
    "Times kept for recommendations in which devices were used too little: began and ended.",
    ["alert", "state"],
)
BUDGET_REQUESTS = Counter(
    "drivetrain_cost_budget_requests_total",
    "Commands about budgets by answer: set, removed, repeated, or the reason of the refusal.",
    ["answer"],
)
BUDGETS_REACHED = Counter(
    "drivetrain_cost_budgets_reached_total",
    "Levels that the spend of budgets has reached, by what follows.",
    ["action"],
)
BUDGET_STOPS = Counter(
    "drivetrain_cost_budget_stops_total", "Jobs that were stopped because a budget was used up."
)
BUDGET_WATCH_SECONDS = Histogram(
    "drivetrain_cost_budget_watch_seconds", "Comparing every budget with the spend, once."
)
