"""Every Prometheus metric of the search service."""

from prometheus_client import Counter, Gauge, Histogram

STUDY_REQUESTS = Counter(
    "drivetrain_hpo_study_requests_total",
    "Requests for studies by answer: started, repeated, or the reason of the refusal.",
    ["answer"],
)
STUDIES_COMPLETED = Counter("drivetrain_hpo_studies_completed_total", "Studies that completed.")
STUDIES_FAILED = Counter(
    "drivetrain_hpo_studies_failed_total",
    "Studies that failed: too many of their trials failed, or were refused.",
)
STUDIES_CANCELLED = Counter(
    "drivetrain_hpo_studies_cancelled_total", "Studies that their owners cancelled."
)
STUDY_CANCELS = Counter(
    "drivetrain_hpo_study_cancels_total",
    "Requests to cancel a study by answer: accepted, repeated, or the reason of the refusal.",
    ["answer"],
)
TRIALS_PROPOSED = Counter("drivetrain_hpo_trials_proposed_total", "Trials proposed.")
TRIALS_ENDED = Counter(
    "drivetrain_hpo_trials_ended_total", "Trials that ended, with or without a value.", ["state"]
)
STUDY_COMMANDS = Counter(
    "drivetrain_hpo_study_commands_total",
    "Commands about running studies by answer: accepted, repeated, or the reason of the refusal.",
    ["command", "answer"],
)
TRIALS_PROMOTED = Counter("drivetrain_hpo_trials_promoted_total", "Paused trials that went on.")
TRIALS_STOPPED = Counter(
    "drivetrain_hpo_trials_stopped_total",
    "Trials that ended early, by pruner, and why: the pruner, the end of their study, or outside.",
    ["pruner", "why"],
)
SAVED_DEVICE_SECONDS = Counter(
    "drivetrain_hpo_saved_device_seconds_total",
    "Device-seconds that trials which ended early would have needed to their end; an estimate by "
    "steps, added when a study completes.",
)
STUDIES = Gauge(
    "drivetrain_hpo_studies", "Studies that have not ended: running, paused or ending.", ["state"]
)
TRIALS = Gauge(
    "drivetrain_hpo_trials",
    "Trials that have not ended: paused, or running and waiting for devices.",
    ["state"],
)
LOG_EVENTS = Gauge(
    "drivetrain_hpo_log_events",
    "Stored events of studies that have not ended: of all, and of the longest log.",
    ["what"],
)
RUNGS_MEASURED = Counter(
    "drivetrain_hpo_rungs_measured_total",
    "Trials judged at a rung, by pruner and verdict.",
    ["pruner", "verdict"],
)
DECISION_SECONDS = Histogram(
    "drivetrain_hpo_decision_seconds",
    "Time of one decision of a search, proposals included, by sampler.",
    ["sampler"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0),
)
SEARCHES_LOADED = Counter(
    "drivetrain_hpo_searches_loaded_total", "Searches that were loaded from their rows."
)
LIMITS_NOT_READ = Counter(
    "drivetrain_hpo_limits_not_read_total",
    "Failed reads of a study, every 5 s for each: it goes on beyond its limits, or its "
    "paused trials are not ended.",
)
