"""The Prometheus metrics that every service has. No ids as labels."""

from prometheus_client import Counter, Gauge, Histogram

HANDLED = Counter("drivetrain_events_handled_total", "Events handled, by type.", ["type"])
DUPLICATES = Counter(
    "drivetrain_events_duplicate_total",
    "Events dropped because they were handled before.",
    ["type"],
)
PARKED = Counter("drivetrain_events_parked_total", "Records set aside, by reason.", ["reason"])
SKIPPED = Counter(
    "drivetrain_events_skipped_total", "Unreadable records that another service parks.", ["reason"]
)
FORGED = Counter(
    "drivetrain_forged_reports_total",
    "Records of pods ignored because the token is not that of the run they name, by type.",
    ["type"],
)
SEQUENCE_GAPS = Counter(
    "drivetrain_sequence_gaps_total", "Times that events of a key were found missing.", ["topic"]
)
RETRIES = Counter(
    "drivetrain_consumer_retries_total",
    "Batches tried again because something was unavailable.",
    ["group"],
)
BATCHES_SPLIT = Counter(
    "drivetrain_consumer_batches_split_total",
    "Batches that failed and were handled again record by record.",
    ["group"],
)
PAUSED = Gauge("drivetrain_consumer_paused_partitions", "Partitions that back off.", ["group"])
LAG = Gauge("drivetrain_consumer_lag_records", "Records not yet handled.", ["group"])
HANDLING_SECONDS = Histogram(
    "drivetrain_handling_seconds", "Time of one transaction of a handler.", ["group"]
)
PUBLISHED = Counter("drivetrain_outbox_published_total", "Outbox rows acknowledged by Kafka.")
PUBLISH_FAILURES = Counter("drivetrain_outbox_failures_total", "Publications without an answer.")
HTTP_REFUSED = Counter(
    "drivetrain_http_refused_total", "Requests that a read port refused, by reason.", ["reason"]
)
OUTBOX_HELD_KEYS = Gauge(
    "drivetrain_outbox_held_keys", "Keys whose events wait for an earlier one to be acknowledged."
)
OUTBOX_REFUSED = Counter(
    "drivetrain_outbox_refused_total", "Outbox rows that Kafka will never accept.", ["topic"]
)
OUTBOX_WAITING = Gauge("drivetrain_outbox_waiting_rows", "Outbox rows not yet acknowledged.")
PRUNED = Counter(
    "drivetrain_retention_pruned_rows_total",
    "Rows removed because they are no longer needed.",
    ["table"],
)
