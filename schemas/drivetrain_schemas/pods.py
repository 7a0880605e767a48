"""Pods: the files through which the launcher and a pod's shim communicate.

They are in the pod's directory, never on a topic. `PodExit` alone says how a pod ended.
"""

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, StringConstraints

from drivetrain_schemas.base import UtcTime, Value
from drivetrain_schemas.ids import JobId, NodeId, PodId, RunId, TenantId
from drivetrain_schemas.jobs import JobSpec, Result
from drivetrain_schemas.kafka_security import SaslMechanism, SecurityProtocol
from drivetrain_schemas.text import AS_PRINTED
from drivetrain_schemas.units import Attempt, Fence, Rank, Seconds, Step

# The environment variable that identifies every process of a pod, in /proc/PID/environ.
MARKER = "DRIVETRAIN_POD_MARKER"


def marker_of(directory: Path) -> str:
    """The value of `MARKER` in all processes of the pod in this directory: its id and its root.

    Two platforms on one machine may give pods the same id, which is derived from the request id;
    their pods never share a root (`<root>/<job>/<attempt>/<pod>`).
    """
    root = directory.parents[2].resolve()
    return f"{directory.name}@{hashlib.sha256(bytes(root)).hexdigest()[:16]}"


def _from_any_launcher(job: Any) -> JobSpec:
    # A newer launcher's spec may have fields that this pod's older image does not know.
    return JobSpec.model_validate(job, extra="ignore")


class KafkaAccess(Value):
    """How a pod logs in to write its topics: metrics, logs, reports.

    `ca`, `certificate` (with its chain) and `key` are PEM text: a pod needs no files for them.
    Without `security_protocol` it is that of the user name. Brokers have quotas by `client_id`.
    """

    bootstrap_servers: str
    topic_prefix: str = "drivetrain."
    client_id: str | None = None
    username: str | None = None
    password: Annotated[str | None, Field(repr=False)] = None
    security_protocol: SecurityProtocol | None = None
    sasl_mechanism: SaslMechanism | None = None
    ca: str | None = None
    certificate: str | None = None
    key: Annotated[str | None, Field(repr=False)] = None


class PodTrace(Value):
    """Where a pod exports its spans (the base address of OTLP over HTTP), and their parent."""

    endpoint: str
    traceparent: Annotated[
        str, StringConstraints(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
    ]


class PodSpec(Value):
    """`spec.json`: everything a shim needs. Written by the launcher, readable by the owner only.

    `devices` are the indices on the machine of the devices that the pod was granted, one for each
    of its ranks; a pod sees no others. CPUs are shared and have none. `code_urls` are the locations
    besides the object store from which the job's code may be fetched. `run_token` proves in reports
    which run the pod belongs to. The ranks meet in `rendezvous_file` where the pods share one, else
    at `rendezvous_address` (of the pod that has rank 0; none: this machine) and `master_port`.
    Without `trace` no spans are exported. `groups` are the directories of the cgroups that the
    launcher made for the pod's ranks.
    """

    pod_id: PodId
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    node_id: NodeId
    pod_index: Annotated[int, Field(ge=0)]
    num_pods: Annotated[int, Field(ge=1)]
    first_rank: Annotated[int, Field(ge=0)]
    num_ranks: Annotated[int, Field(ge=1)]
    world_size: Annotated[int, Field(ge=1)]
    device_type: str
    job: Annotated[JobSpec, BeforeValidator(_from_any_launcher)]
    kafka: KafkaAccess
    object_store_url: str
    master_port: Annotated[int, Field(ge=1, le=65535)]
    rendezvous_address: str | None = None
    rendezvous_file: str | None = None
    object_store_endpoint_url: str | None = None
    object_store_id: str | None = None
    devices: tuple[Annotated[int, Field(ge=0)], ...] = ()
    code_urls: tuple[str, ...] = ()
    max_log_kib_per_second: Annotated[int, Field(ge=1)] = 1024
    run_token: str | None = None
    trace: PodTrace | None = None
    groups: tuple[str, ...] = ()

    @property
    def memory_bytes(self) -> int | None:
        """The share of its ranks of the job's memory."""
        of_job = self.job.resources.memory_bytes
        return None if of_job is None else -(-of_job * self.num_ranks // self.world_size)


StopReason = Literal["cancel", "preempt", "gang", "shutdown", "stop", "pause"]


def _as_known(reason: Any) -> Any:
    # A newer scheduler may have reasons that this pod's older image does not know.
    return reason if reason in get_args(StopReason) else "shutdown"


class StopNotice(Value):
    """`stop.json`: stop at the next agreed step; at the deadline everything is killed.

    Without `checkpoint` nothing is saved: what the run has done since its last one is not wanted.
    """

    reason: Annotated[StopReason, BeforeValidator(_as_known)]
    deadline_seconds: Seconds
    checkpoint: bool = True


class PodIdentity(Value):
    """`identity.json`: identifies the shim's process, even if its pid is reused later."""

    boot_id: Annotated[str, StringConstraints(max_length=64)]
    pid: Annotated[int, Field(ge=1, le=2**22)]
    start_ticks: Annotated[int, Field(ge=0, le=2**63 - 1)]


class RankExit(Value):
    """How one rank ended: by a code or by a signal."""

    rank: Rank
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    signal: Annotated[int, Field(ge=1, le=127)] | None = None


class FailureKind(StrEnum):
    """What kind of failure it was, as far as the rank's output tells."""

    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    EXCEPTION = "exception"
    OUTSIDE = "outside"  # an exception that names a network, a store or a device
    OUT_OF_MEMORY = "out_of_memory"
    INVALID = "invalid"  # the program cannot run as it is: a retry cannot help


class Failure(Value):
    """The failure of the first rank that failed; `PodExit.detail` describes it.

    `step`: the last that the run reported. `has_saved`: this run wrote a checkpoint, or, where it
    reported no step, left other files to the next one than it began with.
    """

    kind: FailureKind
    step: Step | None = None
    has_saved: bool = False


class PodExit(Value):
    """`exit.json`, renamed into place after the last descendant has ended."""

    pod_id: PodId
    outcome: Literal["succeeded", "failed", "interrupted"]
    ranks: Annotated[tuple[RankExit, ...], Field(max_length=1024)]
    first_failed_rank: Rank | None = None
    detail: Annotated[str, StringConstraints(max_length=4096), AS_PRINTED] = ""
    last_log: Annotated[str, StringConstraints(max_length=8192), AS_PRINTED] = ""
    result: Result | None = None
    failure: Failure | None = None
    ended_at: UtcTime
