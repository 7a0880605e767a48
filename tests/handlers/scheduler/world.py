"""A scheduler on a real Postgres, with a launcher whose pods do what a test says."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobCancel, JobSpec, JobSubmit
from drivetrain_schemas.pods import PodExit, PodSpec, RankExit, StopNotice
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Platform
from services.scheduler import store
from services.scheduler.core.mask import Mask
from services.scheduler.core.model import Node
from services.scheduler.core.pods import EndReason, Sight
from services.scheduler.core.waits import Wait
from services.scheduler.fleet import Fleet, register
from services.scheduler.handlers import Commands
from services.scheduler.launchers.base import (
    LaunchBlocked,
    LauncherUnavailable,
    LaunchRefused,
    Observation,
    PodRef,
    Rendezvous,
)
from services.scheduler.leases import Leases
from services.scheduler.loop import Loop
from services.scheduler.pods import Pods
from services.scheduler.settings import SchedulerSettings
from tests import events
from tests.fakes import InMemoryBus, InMemoryObjectStore, ManualClock

NODES = [
    {"node_id": "n1", "pool": "default", "device_type": "cpu", "slots": 2},
    {"node_id": "n2", "pool": "default", "device_type": "cpu", "slots": 2},
]


def make_settings(**changes: Any) -> SchedulerSettings:
    facts = {
        "kafka_bootstrap_servers": "nowhere:1",
        "postgres_dsn": "postgresql://nowhere",
        "nodes": NODES,
        "lease_seconds": 10,
    }
    return SchedulerSettings.model_validate({**facts, **changes})


def make_spec(**changes: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "digits", "command": ["python", "-c", "1"], **changes})


def make_submit(request_id: str = "r1", **changes: Any) -> JobSubmit:
    return JobSubmit(
        request_id=request_id,
        spec=make_spec(**changes),
        job_id=job_id_for("default", request_id),
    )


class FakeLauncher:
    """Pods as values: `sights` is the truth, and the test changes it."""

    can_run_images = False
    start_seconds = 30.0

    def __init__(self) -> None:
        self.sights: dict[str, Observation] = {}
        self.specs: dict[str, PodSpec] = {}
        self.launches: list[str] = []
        self.starts: list[str] = []
        self.notices: dict[str, StopNotice] = {}
        self.killed: list[str] = []
        self.unkillable: set[str] = set()
        self.removed: list[str] = []
        self.unremovable: set[str] = set()
        self.busy_ports: set[int] = set()
        self.sizes: dict[str, int] = {}
        self.is_away = False
        self.refusals: dict[str, EndReason] = {}
        self.blocked: dict[str, Wait] = {}
        self.wake: Callable[[], None] = lambda: None

    async def free_ports(self, ports: Sequence[int]) -> set[int]:
        return set(ports) - self.busy_ports

    def rendezvous(self, job_id: str, attempt: int) -> Rendezvous:
        return Rendezvous("127.0.0.1", f"/pods/{job_id}/{attempt}/rendezvous")

    async def launch(self, spec: PodSpec) -> None:
        self._check()
        if spec.pod_id in self.refusals:
            raise LaunchRefused(self.refusals[spec.pod_id])
        if spec.pod_id in self.blocked:
            raise LaunchBlocked(self.blocked[spec.pod_id])
        self.launches.append(spec.pod_id)
        self.specs[spec.pod_id] = spec
        if spec.pod_id not in self.sights:
            self.starts.append(spec.pod_id)
            self.sights[spec.pod_id] = Observation(Sight.ALIVE)

    async def observe(self, pods: Sequence[PodRef]) -> dict[str, Observation]:
        self._check()
        absent = Observation(Sight.ABSENT)
        return {pod.pod_id: self.sights.get(pod.pod_id, absent) for pod in pods}

    async def watch(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        await asyncio.get_running_loop().create_future()

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        self._check()
        self.notices[pod.pod_id] = notice

    async def kill(self, pods: Sequence[PodRef]) -> frozenset[str]:
        self._check()
        self.killed += [pod.pod_id for pod in pods]
        gone = frozenset(pod.pod_id for pod in pods) - self.unkillable
        for pod_id in gone & self.sights.keys():
            if self.sights[pod_id].sight is not Sight.ENDED:
                self.sights[pod_id] = replace(self.sights[pod_id], sight=Sight.DEAD)
        return gone

    async def size_bytes(self, job_id: str) -> int:
        return self.sizes.get(job_id, 0)

    async def remove(self, job_id: str) -> None:
        if job_id in self.unremovable:
            raise PermissionError(job_id)
        self.removed.append(job_id)
        self.sights = {
            pod: seen for pod, seen in self.sights.items() if pod not in self._of(job_id)
        }

    def _of(self, job_id: str) -> set[str]:
        return {spec.pod_id for spec in self.specs.values() if spec.job_id == job_id}

    def _check(self) -> None:
        if self.is_away:
            raise LauncherUnavailable("connection refused")

    def end(self, pod_id: str, outcome: str = "succeeded", **facts: Any) -> None:
        """The pod's shim wrote exit.json and is gone."""
        spec = self.specs[pod_id]
        code = {"succeeded": 0, "failed": 1, "interrupted": 75}[outcome]
        ranks = tuple(
            RankExit(rank=spec.first_rank + number, exit_code=code, signal=None)
            for number in range(spec.num_ranks)
        )
        failed = spec.first_rank if outcome == "failed" else None
        end = PodExit.model_validate(
            {
                "pod_id": pod_id,
                "outcome": outcome,
                "ranks": ranks,
                "first_failed_rank": failed,
                "ended_at": datetime.now(UTC),
                **facts,
            }
        )
        self.sights[pod_id] = Observation(Sight.ENDED, end)
        self.wake()


class FakeNodes:
    """A source whose nodes a test changes."""

    gone = "the node is gone"

    def __init__(self, now: Sequence[Node]) -> None:
        self.now = list(now)
        self.is_away = False
        self.num_asked = 0
        self.room: Mask | None = None
        self.wake: Callable[[], None] = lambda: None

    async def nodes(self) -> Sequence[Node]:
        self.num_asked += 1
        if self.is_away:
            raise LauncherUnavailable("connection refused")
        return tuple(self.now)

    def mask(self) -> Mask | None:
        return self.room

    async def watch(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        await asyncio.get_running_loop().create_future()


class World:
    """One scheduler and what it has sent."""

    def __init__(self, database: Database, launcher: FakeLauncher, **settings: Any) -> None:
        self.database = database
        self.launcher = launcher
        self.settings = make_settings(**settings)
        self.clock = ManualClock()
        self.bus = InMemoryBus()
        self.platform = Platform(
            settings=self.settings,
            database=database,
            publisher=self.bus,
            object_store=InMemoryObjectStore(),
            clock=self.clock,
            stopping=asyncio.Event(),
        )
        self._last = 0
        self.nodes = FakeNodes(_nodes_of(self.settings))
        self.restart()

    def restart(self) -> None:
        """The process died; a new one knows only what is in the database and what it sees."""
        tokens = RunTokens(self.settings.run_token_key)
        self.leases = Leases(self.clock, tokens, lease=self.settings.lease_seconds, interval=2)
        self.pods = Pods(self.launcher, self.settings, self.clock)
        self.fleet = Fleet(self.nodes, self.settings.resync_seconds)
        self.loop = Loop(self.settings, self.pods, self.leases, self.fleet)
        self.loop.registered.set()
        self.commands = Commands(self.loop.wake, self.loop.registered, can_run_images=False)

    async def register(self) -> "World":
        async with self.database.transaction() as tx:
            await register(tx, self.nodes.now, self.nodes.gone)
        await self.emitted()
        return self

    async def look_at_nodes(self) -> list[Any]:
        """What the following of the source does, and what it emits."""
        if await self.fleet.look():
            self.loop.wake()
        await self.emitted()
        await self.rounds()
        return [each for each in await self.emitted() if each.kind.type.startswith("node.")]

    async def submit(self, *requests: JobSubmit, tenant_id: str = "default") -> list[Any]:
        return await self._handle(*requests, tenant_id=tenant_id)

    async def cancel(self, job_id: str, reason: str = "enough") -> list[Any]:
        return await self._handle(JobCancel(job_id=job_id, reason=reason))

    async def rounds(self, limit: int = 20) -> None:
        """Rounds until nothing moves any more."""
        self.loop.wake()
        for _ in range(limit):
            if not await self.loop.round(self.platform):
                return
        raise AssertionError("the loop does not come to rest")

    async def emitted(self) -> list[Any]:
        """What was emitted since the last call."""
        found = await events.emitted(self.database, after=self._last)
        async with self.database.connection() as connection:
            self._last = await connection.fetchval("select coalesce(max(id), 0) from outbox")
        return [event.payload for event in found]

    async def types(self) -> list[str]:
        return [payload.kind.type for payload in await self.emitted()]

    async def job(self, job_id: str) -> store.JobRow | None:
        async with self.database.connection() as connection:
            return await store.job(connection, job_id)

    async def spec(self, job_id: str) -> JobSpec:
        async with self.database.connection() as connection:
            return (await store.specs(connection, [job_id]))[job_id]

    async def _handle(self, *payloads: Payload, tenant_id: str = "default") -> list[Any]:
        await self.emitted()
        return await events.handle(
            self.database,
            self.commands.handlers,
            *(events.make_event(payload, tenant_id=tenant_id) for payload in payloads),
            refusals=self.commands.refusals,
        )


def _nodes_of(settings: SchedulerSettings) -> list[Node]:
    return [
        Node(node.node_id, node.pool, node.device_type, node.slots, node.first_device)
        for node in settings.nodes
    ]


async def start(world: World, **spec: Any) -> None:
    """A job is submitted and runs; what was emitted up to there is dropped."""
    await world.submit(make_submit(**spec))
    await world.rounds()
    await world.emitted()
