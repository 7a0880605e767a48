"""The Prometheus metrics that every service has. No ids as labels."""

from prometheus_client import Counter, Gauge, Histogram

HANDLED = Counter("drivetrain_events_handled_total", "Events handled, by type.", ["type"])
FAILED = Counter(
    "drivetrain_events_failed_total",
    "Events whose handler failed and was rolled back, by type; each is handled again or parked.",
    ["type"],
)
EVENT_SECONDS = Histogram(
    "drivetrain_event_handling_seconds",
    "Time of the handler of one event, by type; of a batch, its time divided by its events.",
    ["type"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
)
DUPLICATES = Counter(
    "drivetrain_events_duplicate_total",
    "Events dropped because they were handled before.",
    ["type"],
)
PARKED = Counter("drivetrain_events_parked_total", "Records set aside, by reason.", ["reason"])
PARKED_DROPPED = Counter(
    "drivetrain_events_parked_dropped_total",
    "Unreadable records beyond what a day may park of their topic, by topic.",
    ["topic"],
)
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
LAG_SECONDS = Gauge(
    "drivetrain_consumer_lag_seconds",
    "How long the oldest record not yet handled has been waiting; seen every few seconds.",
    ["group"],
)
STILL_SECONDS = Gauge(
    "drivetrain_consumer_still_seconds",
    "How long nothing was handled although records wait; the watchdog ends the process for it.",
    ["group"],
)
DELAY_SECONDS = Histogram(
    "drivetrain_event_delay_seconds",
    "From the time of a record in Kafka to the commit of its handler; none older than an hour.",
    ["group"],
    buckets=(0.1, 0.5, 1, 2, 5, 15, 60, 300),
)
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
OUTBOX_AGE = Gauge(
    "drivetrain_outbox_oldest_seconds", "How long the oldest outbox row has waited for Kafka."
)
PUBLISH_SECONDS = Histogram(
    "drivetrain_outbox_publish_seconds",
    "Time of one publication, from sending to the last acknowledgement.",
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 30),
)
POOL_CONNECTIONS = Gauge(
    "drivetrain_database_pool_connections",
    "Connections to Postgres of the pool, by state: used, idle, or still to be opened (spare).",
    ["state"],
)
POOL_WAIT_SECONDS = Histogram(
    "drivetrain_database_pool_wait_seconds",
    "Time until the pool had a connection, or gave up.",
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 5),
)
PRUNED = Counter(
    "drivetrain_retention_pruned_rows_total",
    "Rows removed because they are no longer needed.",
    ["table"],
)
