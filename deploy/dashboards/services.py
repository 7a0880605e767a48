"""Services: rate, errors and duration per event type, lag, outbox, pool, relay, watchdog."""

from deploy.dashboards.panels import GATEWAY, SERVICE, Link, board, line, number, quantile, rate

_OF = 'service=~"$service"'
_PARKED = Link("Parked records", "/parked")

SERVICES = board(
    "services",
    "Whether every service handles its events in time.",
    [GATEWAY, SERVICE],
    {
        "At a glance": [
            number(
                "Services that answer",
                "Targets whose /metrics Prometheus can read.",
                "short",
                f'sum(up{{job="drivetrain",{_OF}}})',
            ),
            line(
                "Objectives: share of errors",
                "Of the last hour: submissions not answered within "
                "2 s, events not handled within 5 s, restarts that took over 2 min. Alerts look at "
                "how fast this uses up the budgets (0.1 %, 0.1 %, 1 %).",
                "percentunit",
                ("slo:errors:ratio_rate1h", "{{slo}}"),
            ),
            number(
                "Parked records",
                "Records of all services that wait for a decision.",
                "short",
                "max(drivetrain_gateway_parked_open_records)",
                link=_PARKED,
            ),
        ],
        "Events": [
            line(
                "Events handled",
                "Per second, by type.",
                "ops",
                (
                    rate("drivetrain_events_handled_total", "service, type", _OF),
                    "{{service}} {{type}}",
                ),
            ),
            line(
                "Handlings that failed",
                "Rolled back and done again, by type.",
                "ops",
                (
                    rate("drivetrain_events_failed_total", "service, type", _OF),
                    "{{service}} {{type}}",
                ),
            ),
            line(
                "Time to handle one event (95 %)",
                "Of its handler, by type.",
                "s",
                (
                    quantile(0.95, "drivetrain_event_handling_seconds", "service, type", _OF),
                    "{{service}} {{type}}",
                ),
            ),
            line(
                "Delay of events (99 %)",
                "From the record in Kafka to the commit of its handler.",
                "s",
                (quantile(0.99, "drivetrain_event_delay_seconds", "service", _OF), "{{service}}"),
            ),
            line(
                "Consumer lag, records",
                "Not handled yet.",
                "short",
                (f"sum by (group) (drivetrain_consumer_lag_records{{{_OF}}})", "{{group}}"),
            ),
            line(
                "Consumer lag, time",
                "How long the oldest record not handled has waited.",
                "s",
                (f"max by (group) (drivetrain_consumer_lag_seconds{{{_OF}}})", "{{group}}"),
            ),
            line(
                "Parked and skipped",
                "Records set aside, by reason.",
                "ops",
                (
                    rate("drivetrain_events_parked_total", "service, reason", _OF),
                    "{{service}} {{reason}}",
                ),
                (
                    rate("drivetrain_events_parked_dropped_total", "service, topic", _OF),
                    "{{service}} dropped of {{topic}}",
                ),
                link=_PARKED,
            ),
            line(
                "Standing still",
                "How long nothing was handled although records wait. The watchdog "
                "restarts the service at 90 s.",
                "s",
                (f"max by (group) (drivetrain_consumer_still_seconds{{{_OF}}})", "{{group}}"),
            ),
            line(
                "Partitions that back off",
                "Something the handler needs is unavailable.",
                "short",
                (f"max by (group) (drivetrain_consumer_paused_partitions{{{_OF}}})", "{{group}}"),
            ),
        ],
        "Outbox and relay": [
            line(
                "Oldest event not in Kafka",
                "Of the outbox of each service.",
                "s",
                (f"max by (service) (drivetrain_outbox_oldest_seconds{{{_OF}}})", "{{service}}"),
            ),
            line(
                "Events sent",
                "Acknowledged by Kafka, per second.",
                "ops",
                (rate("drivetrain_outbox_published_total", "service", _OF), "{{service}}"),
            ),
            line(
                "Time of a publication (95 %)",
                "From sending to the last acknowledgement.",
                "s",
                (
                    quantile(0.95, "drivetrain_outbox_publish_seconds", "service", _OF),
                    "{{service}}",
                ),
            ),
            line(
                "Rows that wait",
                "In the outbox, at most 10,000 are counted.",
                "short",
                (f"max by (service) (drivetrain_outbox_waiting_rows{{{_OF}}})", "{{service}}"),
            ),
            line(
                "Keys held back",
                "They wait for an earlier event to be acknowledged.",
                "short",
                (f"max by (service) (drivetrain_outbox_held_keys{{{_OF}}})", "{{service}}"),
            ),
            line(
                "Publications without an answer",
                "They are sent again.",
                "ops",
                (rate("drivetrain_outbox_failures_total", "service", _OF), "{{service}}"),
            ),
        ],
        "Postgres and processes": [
            line(
                "Connections of the pool",
                "Used, idle, and still to be opened.",
                "short",
                (
                    f"sum by (service, state) (drivetrain_database_pool_connections{{{_OF}}})",
                    "{{service}} {{state}}",
                ),
            ),
            line(
                "Wait for a connection (95 %)",
                "Of the pool of the service.",
                "s",
                (
                    quantile(0.95, "drivetrain_database_pool_wait_seconds", "service", _OF),
                    "{{service}}",
                ),
            ),
            line(
                "Memory",
                "Resident, by process.",
                "bytes",
                (
                    f'process_resident_memory_bytes{{job="drivetrain",{_OF}}}',
                    "{{service}} {{instance}}",
                ),
            ),
            line(
                "CPUs",
                "Used by each process.",
                "short",
                (
                    f'rate(process_cpu_seconds_total{{job="drivetrain",{_OF}}}[$__rate_interval])',
                    "{{service}} {{instance}}",
                ),
            ),
            line(
                "Starts",
                "Of each process within an hour.",
                "short",
                (
                    f'changes(process_start_time_seconds{{job="drivetrain",{_OF}}}[1h])',
                    "{{service}} {{instance}}",
                ),
            ),
        ],
        "HTTP": [
            line(
                "Requests",
                "To the gateway, by status.",
                "reqps",
                (rate("drivetrain_gateway_requests_total", "status"), "{{status}}"),
            ),
            line(
                "Time to the answer (95 %)",
                "Of the gateway, by route.",
                "s",
                (quantile(0.95, "drivetrain_gateway_request_seconds", "route"), "{{route}}"),
            ),
            line(
                "Age of the read model",
                "How far pages and answers are behind the events.",
                "s",
                ("max(drivetrain_gateway_model_age_seconds)", "age"),
            ),
        ],
    },
)
