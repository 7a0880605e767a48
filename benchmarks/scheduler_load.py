"""A scheduler under load: the real service, Kafka and Postgres, and simulated pods."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSpec, JobSubmit
from drivetrain_schemas.pods import PodExit, PodSpec, RankExit, StopNotice
from services.runtime.bus import OutRecord
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.service import Running
from services.runtime.topics import create_topics
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import Observation, PodRef, Rendezvous
from services.scheduler.launchers.nodes import NodesOfSettings
from services.scheduler.settings import NodeSetting, SchedulerSettings
from services.scheduler.wiring import assemble
from tests.platform_service import out_record, running, service_environment

_ABSENT = Observation(Sight.ABSENT)
_ALIVE = Observation(Sight.ALIVE)


@dataclass(slots=True)
class TimedPods:
    """A launcher whose pods are alive immediately and succeed after `seconds`, or on request."""

    seconds: float
    can_run_images: bool = False
    start_seconds: float = 30.0
    _ends_at: dict[str, float] = field(default_factory=dict)
    _specs: dict[str, PodSpec] = field(default_factory=dict)
    _ended: dict[str, Observation] = field(default_factory=dict)
    _wake: Callable[[], None] | None = None

    async def free_ports(self, ports: Sequence[int]) -> Sequence[int]:
        return ports

    def rendezvous(self, job_id: str, attempt: int) -> Rendezvous:
        return Rendezvous("127.0.0.1", f"/pods/{job_id}/{attempt}/rendezvous")

    async def launch(self, spec: PodSpec) -> None:
        self._specs[spec.pod_id] = spec
        self._ends_at[spec.pod_id] = time.monotonic() + self.seconds
        if self._wake is not None:
            asyncio.get_running_loop().call_later(self.seconds, self._wake)

    async def watch(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        await asyncio.get_running_loop().create_future()

    async def observe(self, pods: Sequence[PodRef]) -> Mapping[str, Observation]:
        now = time.monotonic()
        return {pod.pod_id: self._look(pod.pod_id, now) for pod in pods}

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        self._ends_at[pod.pod_id] = 0.0

    async def kill(self, pods: Sequence[PodRef]) -> Sequence[str]:
        return [pod.pod_id for pod in pods]

    async def size_bytes(self, job_id: str) -> int:
        return 0

    async def remove(self, job_id: str) -> None:
        pass

    def end_some(self, number: int) -> None:
        """Let this many of the live pods succeed now."""
        for pod_id in list(self._ends_at)[:number]:
            self._ends_at[pod_id] = 0.0

    def _look(self, pod_id: str, now: float) -> Observation:
        ends_at = self._ends_at.get(pod_id)
        if ends_at is None:
            return self._ended.get(pod_id, _ABSENT)
        if ends_at > now:
            return _ALIVE
        spec = self._specs.pop(pod_id)
        del self._ends_at[pod_id]
        ranks = tuple(
            RankExit(rank=spec.first_rank + number, exit_code=0, signal=None)
            for number in range(spec.num_ranks)
        )
        end = PodExit(pod_id=pod_id, outcome="succeeded", ranks=ranks, ended_at=datetime.now(UTC))
        self._ended[pod_id] = Observation(Sight.ENDED, end)
        return self._ended[pod_id]


def nodes(number: int, slots: int = 8, pool: str = "default") -> tuple[NodeSetting, ...]:
    return tuple(
        NodeSetting(node_id=f"{pool}-{index:04}", pool=pool, slots=slots) for index in range(number)
    )


@asynccontextmanager
async def scheduler(
    access: KafkaAccess, dsn: str, prefix: str, on: Sequence[NodeSetting], pods: TimedPods
) -> AsyncIterator[Running]:
    """The scheduler service, serving. Its pods send no heartbeats, so no lease lapses."""
    await create_topics(access, prefix)
    settings = SchedulerSettings.model_validate(
        {**service_environment(access, dsn, prefix), "nodes": on, "lease_seconds": 86_400}
    )
    async with running(assemble(settings, pods, NodesOfSettings(settings))) as process:
        yield process


def submission(
    request_id: str, devices: int = 1, priority: int = 0, pool: str = "default"
) -> JobSubmit:
    spec = JobSpec.model_validate(
        {
            "name": "bench",
            "command": ["python", "-c", "train()"],
            "hyperparameters": {"learning_rate": 0.1, "batch_size": 64, "layers": 12},
            "resources": {"devices": devices, "pool": pool},
            "priority": priority,
        }
    )
    return JobSubmit(request_id=request_id, spec=spec, job_id=job_id_for("default", request_id))


def records(prefix: str, submissions: Sequence[JobSubmit]) -> list[OutRecord]:
    """As a client writes them."""
    return [
        out_record(
            Event(
                event_id=f"{prefix}{payload.request_id}",
                source="/benchmark",
                occurred_at=datetime.now(UTC),
                tenant_id="default",
                payload=payload,
            ),
            prefix,
        )
        for payload in submissions
    ]


async def send(access: KafkaAccess, commands: Sequence[OutRecord]) -> None:
    publisher = KafkaPublisher(access, "bench")
    try:
        for start in range(0, len(commands), 500):
            await publisher.publish(commands[start : start + 500])
    finally:
        await publisher.close()


async def until(process: Running, question: str, *arguments: Any) -> None:
    """Until this query answers true."""
    async with process.platform.database.connection() as connection:
        while not await connection.fetchval(question, *arguments):
            await asyncio.sleep(0.02)
