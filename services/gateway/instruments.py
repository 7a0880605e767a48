"""Every Prometheus metric of the gateway. No ids as labels."""

from prometheus_client import Counter, Gauge, Histogram

MODEL_AGE = Gauge(
    "drivetrain_gateway_model_age_seconds",
    "How far the read model is behind the events; 0 while all are handled",
)
MODEL_LAG = Gauge("drivetrain_gateway_model_lag_records", "Records the read model has not handled")
STREAM_CLIENTS = Gauge("drivetrain_gateway_stream_clients", "Open live streams")
STREAM_DROPPED = Counter(
    "drivetrain_gateway_stream_clients_dropped_total", "Live streams ended for being too slow"
)
REQUESTS = Counter(
    "drivetrain_gateway_requests_total", "Answered HTTP requests", ["method", "route", "status"]
)
REQUEST_SECONDS = Histogram(
    "drivetrain_gateway_request_seconds",
    "Time to the start of the answer",
    ["route"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
COMMANDS = Counter(
    "drivetrain_gateway_commands_total", "Commands sent, by result", ["type", "answer"]
)
PARKED_DECIDED = Counter(
    "drivetrain_gateway_parked_decided_total", "Parked records replayed or discarded", ["decision"]
)
PARKED_OPEN = Gauge(
    "drivetrain_gateway_parked_open_records", "Parked records of all services without a decision"
)
PARTS_UNAVAILABLE = Counter(
    "drivetrain_gateway_parts_unavailable_total",
    "Reads that another service did not answer",
    ["part"],
)
CODE_BYTES = Gauge("drivetrain_gateway_code_bytes", "Uploaded code that is kept")
CODE_DELETED = Counter(
    "drivetrain_gateway_code_deleted_total", "Uploaded archives that no job named for a day"
)
DISK_FREE_BYTES = Gauge(
    "drivetrain_gateway_disk_free_bytes", "Free space on the disk of the data directory"
)
