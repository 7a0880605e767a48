"""The scheduler's Prometheus metrics. No ids as labels."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "drivetrain_scheduler_requests_total",
    "Commands about jobs, by answer.",
    ["answer"],
)
GRANTS = Counter("drivetrain_scheduler_grants_total", "Allocations granted.")
RUNS = Counter("drivetrain_scheduler_runs_total", "Runs ended, by outcome.", ["outcome"])
JOBS = Counter("drivetrain_scheduler_jobs_total", "Jobs finished, by final state.", ["state"])
WAITING = Gauge(
    "drivetrain_scheduler_waiting_jobs",
    "Jobs that wait, by pool and reason; a pool without nodes is unknown.",
    ["pool", "reason"],
)
WAIT_SECONDS = Histogram(
    "drivetrain_scheduler_wait_seconds",
    "From when a job could have started to its grant, by the reason that was told last.",
    ["pool", "reason"],
    buckets=(0.1, 1, 5, 30, 120, 600, 3600, 14400, 86400),
)
DEVICES = Gauge(
    "drivetrain_scheduler_devices",
    "Devices by state (free, no_room, closed, held, unreachable) and holder (none, job, trial).",
    ["pool", "device_type", "state", "holder"],
)
RECOVERY_SECONDS = Histogram(
    "drivetrain_scheduler_recovery_seconds",
    "From a run's end to the job's next run: wait (until its grant), start, or both (restart).",
    ["phase"],
    buckets=(1, 2, 5, 10, 30, 60, 120, 300, 900, 3600),
)
RECOVERY_PHASES = ("wait", "start", "restart")
for phase in RECOVERY_PHASES:
    RECOVERY_SECONDS.labels(phase)  # from 0, or the first restart would be no increase
SLOT_SECONDS = Counter(
    "drivetrain_scheduler_slot_seconds_total",
    "Time that the slots of ended runs were held, by outcome.",
    ["pool", "outcome"],
)
LIVE = Gauge("drivetrain_scheduler_live_runs", "Runs that hold slots.")
WAITING_RUNS = Gauge(
    "drivetrain_scheduler_waiting_runs",
    "Starting runs whose pods do not run yet for a known cause.",
    ["cause"],
)
SUSPECTS = Counter("drivetrain_scheduler_suspected_total", "Runs whose lease lapsed.")
LAUNCHES = Counter("drivetrain_scheduler_launches_total", "Pods launched, by way.", ["way"])
LAUNCH_FAILURES = Counter("drivetrain_scheduler_launch_failures_total", "Launches that failed.")
NODES = Gauge("drivetrain_scheduler_nodes", "Nodes, by whether they accept runs.", ["state"])
LAUNCHER_AWAY = Gauge(
    "drivetrain_scheduler_launcher_away",
    "1 while the launcher is unavailable, or the last pods could not be created.",
)
LAUNCHER_OUTAGES = Counter(
    "drivetrain_scheduler_launcher_outages_total", "How often the launcher became unavailable."
)
KILLS = Counter("drivetrain_scheduler_kills_total", "Pods killed by the launcher.")
STALE_HEARTBEATS = Counter(
    "drivetrain_scheduler_stale_heartbeats_total",
    "Heartbeats that name no pod of a live run, or another run or fence than the pod's; ignored.",
)
KEPT_BYTES = Gauge(
    "drivetrain_scheduler_kept_directories_bytes", "Disk space of finished jobs' pod directories."
)
PRUNED_ROWS = Counter(
    "drivetrain_scheduler_pruned_rows_total", "Rows deleted by the rules of retention.", ["table"]
)
BEACON_FAILURES = Counter("drivetrain_scheduler_beacon_failures_total", "Beacons not published.")
BROKEN_INVARIANTS = Counter(
    "drivetrain_scheduler_broken_invariants_total", "Invariants found broken after a cycle."
)
STATE_DIFFERENCES = Counter(
    "drivetrain_scheduler_state_differences_total",
    "Jobs and allocations whose state in memory differed from Postgres; corrected.",
)
PAUSES = Counter("drivetrain_scheduler_pauses_total", "Jobs paused.")
EARLY_COMMANDS = Counter(
    "drivetrain_scheduler_early_commands_total",
    "Cancels, stops, pauses and resumes that arrived before the request for their job, by result.",
    ["outcome"],
)
ROUND_SECONDS = Histogram(
    "drivetrain_scheduler_round_seconds",
    "One round of the reconcile loop.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
KUBERNETES_CALLS = Counter(
    "drivetrain_scheduler_kubernetes_calls_total",
    "Calls of the Kubernetes API; the code is none where there was no answer.",
    ["verb", "resource", "code"],
)
KUBERNETES_WATCHES = Counter(
    "drivetrain_scheduler_kubernetes_watches_total",
    "Watches that began, by why: first, continued, expired (listed again), failed.",
    ["resource", "why"],
)
KUBERNETES_CACHE_AGE = Gauge(
    "drivetrain_scheduler_kubernetes_cache_age_seconds",
    "Since when a kind of object is no longer watched; 0 while it is.",
    ["resource"],
)
