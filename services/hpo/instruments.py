"""Every Prometheus metric of the search service."""

from prometheus_client import Counter

STUDY_REQUESTS = Counter(
    "drivetrain_hpo_study_requests_total",
    "Requests for studies by answer: started, repeated, or the reason of the refusal.",
    ["answer"],
)
STUDIES_COMPLETED = Counter("drivetrain_hpo_studies_completed_total", "Studies that ended.")
STUDIES_FAILED = Counter(
    "drivetrain_hpo_studies_failed_total", "Studies that ended before all their trials."
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
