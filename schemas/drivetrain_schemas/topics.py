"""Every topic, declared once: name, key, partitions and how long its records are kept.

The name here has no prefix; the platform's settings give one (`drivetrain.` by default).
"""

from dataclasses import dataclass

DAY_MS = 24 * 3600 * 1000
FOR_EVER = -1
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Topic:
    """`key` is the payload field whose records stay in order; `retention_ms` -1 keeps them forever.

    `retention_bytes` bounds what each partition keeps, where anyone may cause a record: the oldest
    go first. `parked_by` is the one service that parks records of this topic that cannot be read.
    """

    name: str
    key: str
    retention_ms: int
    parked_by: str
    partitions: int = 4
    retention_bytes: int = -1


COMMANDS_JOBS = Topic("commands.jobs", "job_id", 30 * DAY_MS, "scheduler")
COMMANDS_STUDIES = Topic("commands.studies", "study_id", 30 * DAY_MS, "hpo")
COMMANDS_BUDGETS = Topic("commands.budgets", "tenant_id", 30 * DAY_MS, "cost")
COMMANDS_SILENCES = Topic("commands.silences", "tenant_id", 30 * DAY_MS, "metrics")
EVENTS_JOBS = Topic("events.jobs", "job_id", FOR_EVER, "gateway")
EVENTS_NODES = Topic("events.nodes", "node_id", FOR_EVER, "gateway")
EVENTS_CHECKPOINTS = Topic("events.checkpoints", "job_id", FOR_EVER, "gateway")
EVENTS_STUDIES = Topic("events.studies", "study_id", FOR_EVER, "gateway")
EVENTS_CHARGES = Topic("events.charges", "tenant_id", FOR_EVER, "gateway")
EVENTS_BUDGETS = Topic("events.budgets", "tenant_id", FOR_EVER, "gateway")
EVENTS_ALERTS = Topic("events.alerts", "job_id", FOR_EVER, "gateway")
EVENTS_SILENCES = Topic("events.silences", "tenant_id", FOR_EVER, "gateway")
EVENTS_PARKED = Topic("events.parked", "decision_id", FOR_EVER, "gateway", partitions=1)
METRICS = Topic("metrics", "run_id", 7 * DAY_MS, "metrics", retention_bytes=1024 * MIB)
LOGS = Topic("logs", "run_id", 7 * DAY_MS, "metrics", retention_bytes=1024 * MIB)
# The state of each rank and pod in live windows: written and read by the metrics service alone.
WINDOWS = Topic("windows", "source_id", 3600 * 1000, "metrics")
REPORTS = Topic("reports", "run_id", 3600 * 1000, "scheduler", retention_bytes=256 * MIB)

# How long a parked record can be looked at and replayed.
PARKED_DAYS = 45
SERVICES = ("scheduler", "checkpoints", "metrics", "cost", "hpo", "gateway")


def parked_topic(service: str) -> Topic:
    """The topic on which `service` parks records that it cannot handle, with the original bytes.

    They are kept for as long as they may be replayed.
    """
    return Topic(
        f"parked.{service}", "event_id", PARKED_DAYS * DAY_MS, "", 1, retention_bytes=128 * MIB
    )


TOPICS: tuple[Topic, ...] = (
    COMMANDS_JOBS,
    COMMANDS_STUDIES,
    COMMANDS_BUDGETS,
    COMMANDS_SILENCES,
    EVENTS_JOBS,
    EVENTS_NODES,
    EVENTS_CHECKPOINTS,
    EVENTS_STUDIES,
    EVENTS_CHARGES,
    EVENTS_BUDGETS,
    EVENTS_ALERTS,
    EVENTS_SILENCES,
    EVENTS_PARKED,
    METRICS,
    LOGS,
    WINDOWS,
    REPORTS,
    *(parked_topic(service) for service in SERVICES),
)
