"""The Prometheus metrics of the checkpoints service."""

from prometheus_client import Counter, Gauge, Histogram

COMMITTED = Counter(
    "drivetrain_checkpoints_committed_total", "Checkpoints found good.", ["verified_by"]
)
REJECTED = Counter(
    "drivetrain_checkpoints_rejected_total", "Checkpoints found invalid, by reason.", ["reason"]
)
SIZE_BYTES = Histogram(
    "drivetrain_checkpoints_size_bytes",
    "Size of a checkpoint that was found good.",
    buckets=(1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12),
)
SAVE_SECONDS = Histogram(
    "drivetrain_checkpoints_save_seconds",
    "From the start of a save to its manifest, as pods report it.",
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 1800),
)
BLOCKED_SECONDS = Histogram(
    "drivetrain_checkpoints_blocked_seconds",
    "For how long a save stopped training, as pods report it.",
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60),
)
RESTORE_SECONDS = Histogram(
    "drivetrain_checkpoints_restore_seconds",
    "Time to load the checkpoint that a run resumed from, as pods report it.",
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 1800),
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
    "drivetrain_checkpoints_failing_runs",
    "Live runs that continue without new checkpoints, by reason.",
    ["reason"],
)
PRUNED = Counter(
    "drivetrain_checkpoints_pruned_total",
    "Pruned rows and files, see services/checkpoints/pruning.py.",
    ["what"],
)
