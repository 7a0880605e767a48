"""Money: what is spent now, what was charged, and what nobody pays for."""

from deploy.dashboards.panels import GATEWAY, POOL, Link, board, line, number, quantile, rate

_JOBS = Link("Jobs and what they cost", "/")
_OF = 'pool=~"$pool"'
_HELD = 'state=~"held|unreachable"'
_PLATFORM = "drivetrain_cost_platform_usd_total"

MONEY = board(
    "money",
    "Spend per hour now, charges, budgets, and use without a price.",
    [GATEWAY, POOL],
    {
        "Now": [
            number(
                "Spend per hour",
                "What the devices held now cost, at today's prices.",
                "currencyUSD",
                "sum(drivetrain_cost_spend_usd_per_hour)",
                link=_JOBS,
            ),
            line(
                "Spend per hour by class",
                "Classes of tenants are a setting of the cost service.",
                "currencyUSD",
                ("sum by (tenant_class) (drivetrain_cost_spend_usd_per_hour)", "{{tenant_class}}"),
                link=_JOBS,
                stacked=True,
            ),
            line(
                "Devices without a price",
                "In use now and charged nothing.",
                "short",
                (
                    f"sum by (pool, device_type) (drivetrain_cost_unpriced_devices{{{_OF}}})",
                    "{{pool}} {{device_type}}",
                ),
                link=_JOBS,
            ),
        ],
        "Charged": [
            line(
                "Charged per hour",
                "Charges are made when devices are released.",
                "currencyUSD",
                (
                    f"3600 * {rate('drivetrain_cost_charged_usd_total', 'pool, device_type', _OF)}",
                    "{{pool}} {{device_type}}",
                ),
                link=_JOBS,
                stacked=True,
            ),
            line(
                "The platform's own cost per hour",
                "Devices held after their pods had ended.",
                "currencyUSD",
                (
                    f"3600 * {rate(_PLATFORM, 'pool, device_type', _OF)}",
                    "{{pool}} {{device_type}}",
                ),
            ),
            line(
                "Charges without a price",
                "And those replaced once there was one.",
                "ops",
                (
                    rate("drivetrain_cost_unpriced_charges_total", "pool, device_type", _OF),
                    "{{pool}} {{device_type}}",
                ),
                (rate("drivetrain_cost_repriced_charges_total"), "replaced"),
            ),
        ],
        "Budgets and storage": [
            line(
                "Budgets reached per hour",
                "Levels of budgets, by what follows: warn, hold or stop.",
                "short",
                (f"3600 * {rate('drivetrain_cost_budgets_reached_total', 'action')}", "{{action}}"),
                (f"3600 * {rate('drivetrain_cost_budget_stops_total')}", "jobs stopped"),
            ),
            line(
                "Comparing all budgets with the spend",
                "Once a second; a crossing is noticed within this time and a second.",
                "s",
                (quantile(0.5, "drivetrain_cost_budget_watch_seconds"), "median"),
                (quantile(0.99, "drivetrain_cost_budget_watch_seconds"), "99 %"),
            ),
            line(
                "Charged for stored checkpoints per hour",
                "A day is charged an hour after its end (UTC).",
                "currencyUSD",
                (f"3600 * {rate('drivetrain_cost_storage_charged_usd_total')}", "storage"),
            ),
        ],
        "What it was spent on": [
            line(
                "Device time by outcome",
                "Devices whose time went to runs that ended so.",
                "short",
                (rate("drivetrain_scheduler_slot_seconds_total", "outcome", _OF), "{{outcome}}"),
                stacked=True,
            ),
            line(
                "Devices by holder",
                "Jobs of people, or trials of studies.",
                "short",
                (
                    f"sum by (holder) (drivetrain_scheduler_devices{{{_OF},{_HELD}}})",
                    "{{holder}}",
                ),
                stacked=True,
            ),
        ],
    },
)
