"""Who may read and write which topic, and what in the object store.

`ACCESS` is the one table from which the broker's ACLs are made.

A service reads the topics of its handlers, writes the events it produces, and parks records on its
own parked topic. Pods only write. Clients are all others, people and other systems: they send
commands and read events. What is not listed here is refused.
"""

from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from drivetrain_schemas.object_store import MARKER_KEY
from drivetrain_schemas.topics import (
    COMMANDS_BUDGETS,
    COMMANDS_JOBS,
    COMMANDS_SILENCES,
    COMMANDS_STUDIES,
    EVENTS_ALERTS,
    EVENTS_BUDGETS,
    EVENTS_CHARGES,
    EVENTS_CHECKPOINTS,
    EVENTS_JOBS,
    EVENTS_NODES,
    EVENTS_SILENCES,
    EVENTS_STUDIES,
    LOGS,
    METRICS,
    REPORTS,
    SERVICES,
    TOPICS,
    WINDOWS,
    Topic,
    parked_topic,
)

POD = "pod"
CLIENT = "client"

_COMMANDS = (COMMANDS_JOBS, COMMANDS_STUDIES)
_EVENTS = tuple(topic for topic in TOPICS if topic.name.startswith("events."))
_PARKED = tuple(parked_topic(service) for service in SERVICES)
_FROM_PODS = (METRICS, LOGS, REPORTS)


@dataclass(frozen=True, slots=True)
class Access:
    reads: tuple[Topic, ...] = ()
    writes: tuple[Topic, ...] = ()


def _service(name: str, reads: tuple[Topic, ...], writes: tuple[Topic, ...]) -> Access:
    own = parked_topic(name)
    # Its own `replay` command reads the records that it parked.
    return Access(tuple(dict.fromkeys((*reads, own))), tuple(dict.fromkeys((*writes, own))))


ACCESS: dict[str, Access] = {
    "scheduler": _service(
        "scheduler",
        (COMMANDS_JOBS, EVENTS_BUDGETS, REPORTS),
        (EVENTS_JOBS, EVENTS_NODES, REPORTS),
    ),
    "checkpoints": _service(
        "checkpoints", (COMMANDS_JOBS, EVENTS_JOBS, REPORTS), (EVENTS_CHECKPOINTS,)
    ),
    "metrics": _service(
        "metrics",
        (
            COMMANDS_SILENCES,
            EVENTS_JOBS,
            EVENTS_ALERTS,
            EVENTS_BUDGETS,
            EVENTS_CHECKPOINTS,
            METRICS,
            LOGS,
            REPORTS,
            WINDOWS,
        ),
        (EVENTS_ALERTS, EVENTS_SILENCES, WINDOWS),
    ),
    "cost": _service(
        "cost",
        (
            COMMANDS_BUDGETS,
            EVENTS_ALERTS,
            EVENTS_CHECKPOINTS,
            EVENTS_JOBS,
            EVENTS_NODES,
            EVENTS_STUDIES,
        ),
        (COMMANDS_JOBS, EVENTS_BUDGETS, EVENTS_CHARGES),
    ),
    "hpo": _service(
        "hpo",
        (COMMANDS_STUDIES, EVENTS_JOBS, EVENTS_ALERTS, EVENTS_CHARGES),
        (COMMANDS_JOBS, EVENTS_STUDIES),
    ),
    # It sends people's commands (those about budgets and silences it alone: who may only submit
    # jobs must not raise a limit), and publishes parked records on their original topics.
    "gateway": _service(
        "gateway",
        (*_EVENTS, *_COMMANDS, REPORTS, *_PARKED),
        (*_COMMANDS, COMMANDS_BUDGETS, COMMANDS_SILENCES, *_EVENTS, *_FROM_PODS, WINDOWS),
    ),
    POD: Access(writes=_FROM_PODS),
    CLIENT: Access(reads=_EVENTS, writes=_COMMANDS),
}


# The client ids of pods. All have one login, so a quota of the user alone lets a job that floods
# delay all others: a broker that is owed bytes reads nothing more of anyone who shares the quota.
POD_CLIENTS = tuple(f"pod-{number}" for number in range(16))


def pod_client(job_id: str) -> str:
    """The client id of a job's pods, the same of each."""
    return POD_CLIENTS[crc32(job_id.encode()) % len(POD_CLIENTS)]


class Limited(NamedTuple):
    """Whose quota: of a user, with this client id or, without one, with any that has none."""

    user: str
    client: str = ""


# What each may ask of each broker, in Kafka's names and units: without a bound a job fills the disk
# and keeps the services waiting. A share is what the metrics service takes of one run. A program
# may call itself what it likes, so the shares are few: their sum bounds all.
QUOTAS: dict[Limited, dict[str, float]] = {
    Limited(POD): {"producer_byte_rate": 8.0 * 1024**2, "request_percentage": 100.0},
    **{
        Limited(POD, client): {"producer_byte_rate": 2.0 * 1024**2, "request_percentage": 25.0}
        for client in POD_CLIENTS
    },
}


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """What one user of the object store does below one prefix of it."""

    user: str
    prefix: str
    reads: bool = False
    writes: bool = False
    deletes: bool = False


SETUP = "setup"

# For the policies of a bucket. Who is not in it, needs no access; all who are also list the bucket
# and read its marker.
STORE_ACCESS: tuple[StoreAccess, ...] = (
    StoreAccess(SETUP, MARKER_KEY, reads=True, writes=True),
    StoreAccess(POD, "code/", reads=True),
    StoreAccess(POD, "checkpoints/", reads=True, writes=True, deletes=True),
    StoreAccess(POD, "files/", reads=True, writes=True, deletes=True),
    StoreAccess(POD, "media/", reads=True, writes=True),
    StoreAccess(POD, "exits/", writes=True),
    StoreAccess("scheduler", "exits/", reads=True, deletes=True),
    StoreAccess("checkpoints", "checkpoints/", reads=True, deletes=True),
    StoreAccess("checkpoints", "files/", reads=True, deletes=True),
    StoreAccess("metrics", "cold/", reads=True, writes=True, deletes=True),
    StoreAccess("metrics", "media/", deletes=True),
    StoreAccess("gateway", "code/", reads=True, writes=True, deletes=True),
    StoreAccess("gateway", "checkpoints/", reads=True),
    StoreAccess("gateway", "files/", reads=True),
    StoreAccess("gateway", "media/", reads=True),
)
