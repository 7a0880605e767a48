"""The Prometheus metrics of the checkpoints service."""

from prometheus_client import Counter, Gauge, Histogram

COMMITTED = Counter(
    "drivetrain_checkpoints_committed_total", "Checkpoints found good.", ["verified_by"]
)
REJECTED = Counter(
    "drivetrain_checkpoints_rejected_total", "Checkpoints found invalid, by reason.", ["reason"]
)
DELETED = Counter("drivetrain_checkpoints_deleted_total", "Checkpoints removed by retention.")
REFUSED_HINTS = Counter(
    "drivetrain_checkpoints_refused_hints_total", "Reports that name no checkpoint of their job."
)
CHECK_SECONDS = Histogram(
    "drivetrain_checkpoints_check_seconds",
    "Time to read a manifest and compare the sizes of its shards.",
    buckets=(0.01, 0.1, 1, 10, 60),
)
READ_BYTES = Counter("drivetrain_checkpoints_read_bytes_total", "Bytes read to verify checkpoints.")
INTENT_FAILURES = Counter(
    "drivetrain_checkpoints_intent_failures_total",
    "Times the object store or the database failed while an intent was carried out, by kind.",
    ["kind"],
)
FAILING_RUNS = Gauge(
    "drivetrain_checkpoints_failing_runs", "Live runs that continue without new checkpoints."
)
PRUNED = Counter(
    "drivetrain_checkpoints_pruned_total",
    "Pruned rows and files, see services/checkpoints/pruning.py.",
    ["what"],
)
