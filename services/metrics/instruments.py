"""The Prometheus metrics of the metrics service."""

from prometheus_client import Counter, Gauge

SAMPLES = Counter("drivetrain_metrics_samples_total", "Samples stored.")
LINES = Counter("drivetrain_metrics_log_lines_total", "Log lines stored.")
DROPPED_BYTES = Counter(
    "drivetrain_metrics_log_dropped_bytes_total",
    "Bytes of output that were left out, by pods or beyond a quota.",
)
REPLAYED = Counter(
    "drivetrain_metrics_batches_replayed_total", "Batches that were stored before.", ["stream"]
)
WARNINGS = Counter("drivetrain_metrics_warnings_total", "Warnings of misuse emitted.")
RUNGS = Counter(
    "drivetrain_metrics_rungs_total",
    "Rungs of trials announced, by whether the judged metric had a value.",
    ["outcome"],
)
WINDOWS_RUNNING = Gauge(
    "drivetrain_metrics_windows_running", "Whether the process that folds live windows runs."
)
WINDOWS_ENDS = Counter(
    "drivetrain_metrics_windows_ends_total", "Times that process ended without being stopped."
)
WINDOWS_STORED = Counter("drivetrain_metrics_windows_stored_total", "Changes of windows stored.")
DELIVERIES = Counter(
    "drivetrain_metrics_deliveries_total",
    "Calls of webhooks, by outcome: sent, failed (tried again), given_up, dropped; of silenced "
    "alerts held, released, over (before the silence). Of lineage endpoints (lineage:NAME) sent, "
    "failed, refused, given_up, dropped.",
    ["webhook", "outcome"],
)
LINEAGE_AGE = Gauge(
    "drivetrain_metrics_lineage_age_seconds",
    "Age of the oldest lineage event that an endpoint has not taken.",
    ["endpoint"],
)
SILENCE_REQUESTS = Counter(
    "drivetrain_metrics_silence_requests_total", "Commands about silences, by answer.", ["answer"]
)
ALERTS = Counter("drivetrain_metrics_alerts_total", "Alerts raised, by kind.", ["alert"])
READS_REFUSED = Counter(
    "drivetrain_metrics_reads_refused_total", "Requests refused because too many were read at once."
)
LEFT_OUT = Counter(
    "drivetrain_metrics_samples_left_out_total",
    "Samples of more series than a job may have (names), beyond a quota (quota), or of ranks that "
    "the run cannot have (ranks).",
    ["reason"],
)
MEDIA = Counter("drivetrain_metrics_media_total", "Pictures, tables and so on that were stored.")
MEDIA_LEFT_OUT = Counter(
    "drivetrain_metrics_media_left_out_total",
    "Pictures and so on beyond what a job may have, or a quota.",
)
MEDIA_DELETED = Counter(
    "drivetrain_metrics_media_deleted_total", "Pictures and so on of jobs that ended long ago."
)
MEDIA_FAILURES = Counter(
    "drivetrain_metrics_media_failures_total",
    "Passes of deleting media that failed, and objects that could not be deleted.",
)
CHUNKS_ADDED = Counter(
    "drivetrain_metrics_chunks_added_total", "Chunks of samples added to the levels of charts."
)
CHUNKS_MERGED = Counter(
    "drivetrain_metrics_chunks_merged_total", "Chunks of samples merged into the next one."
)
COLD_SAMPLES = Counter(
    "drivetrain_metrics_cold_samples_total", "Samples moved to the object store."
)
COLD_BYTES = Counter(
    "drivetrain_metrics_cold_bytes_total", "Bytes of the files they were moved to."
)
COLD_DELETED = Counter(
    "drivetrain_metrics_cold_samples_deleted_total",
    "Samples in the object store that were deleted, because they are older than is kept.",
)
COLD_FAILURES = Counter(
    "drivetrain_metrics_cold_failures_total",
    "Passes of moving old samples that failed, and objects that could not be deleted.",
)
COLD_OVERDUE = Gauge(
    "drivetrain_metrics_cold_overdue_seconds",
    "For how long the oldest samples should have been in the object store.",
)
COLD_READS_FAILED = Counter(
    "drivetrain_metrics_cold_reads_failed_total",
    "Requests refused because old samples could not be read from the object store.",
)
LOG_BYTES_MOVED = Counter(
    "drivetrain_metrics_log_moved_bytes_total", "Bytes of lines moved to the object store, packed."
)
LOG_FAILURES = Counter(
    "drivetrain_metrics_log_failures_total",
    "Passes of moving lines that failed, and objects that could not be deleted.",
)
LOG_OVERDUE = Gauge(
    "drivetrain_metrics_log_overdue_seconds",
    "For how long the lines of an ended job should have been in the object store.",
)
LOG_LINES_DELETED = Counter(
    "drivetrain_metrics_log_lines_deleted_total",
    "Lines in the object store that were deleted: of a job with too many, or too old.",
    ["reason"],
)
