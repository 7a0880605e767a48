"""The Prometheus metrics of the checkpoints service."""

from prometheus_client import Counter, Histogram

COMMITTED = Counter("drivetrain_checkpoints_committed_total", "Checkpoints found good.")
REJECTED = Counter(
    "drivetrain_checkpoints_rejected_total", "Checkpoints found unfit, by reason.", ["reason"]
)
DELETED = Counter("drivetrain_checkpoints_deleted_total", "Checkpoints removed by retention.")
REFUSED_HINTS = Counter(
    "drivetrain_checkpoints_refused_hints_total", "Reports that name no checkpoint of their job."
)
VERIFY_SECONDS = Histogram(
    "drivetrain_checkpoints_verify_seconds",
    "Time to read and verify one checkpoint.",
    buckets=(0.01, 0.1, 1, 10, 60, 600),
)
INTENT_FAILURES = Counter(
    "drivetrain_checkpoints_intent_failures_total",
    "Times the object store or the database did not let an intent through, by kind.",
    ["kind"],
)
