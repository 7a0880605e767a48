"""A seeded scheduler in trouble: real decisions, real Postgres, pods and crashes by chance.

`Chaos(seed)` drives jobs, pods and time at random, kills the scheduler before, inside and after its
transactions and its acts, cuts its connection around commits, so that it lives on without knowing
whether they were made, and delivers commands twice. After each step the state in memory is compared
with the tables. `verdict` then lists what must not have happened; the seed alone repeats it.
"""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobCancel, JobPause, JobResume, JobStop, JobSubmit
from services.runtime.database import Database
from services.runtime.errors import TemporaryError
from services.runtime.transaction import Tx
from services.scheduler.core.invariants import check
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import LauncherUnavailable, Observation, PodRef
from services.scheduler.state import differences, read, refresh
from tests.events import emitted, make_event
from tests.events import handle as deliver
from tests.handlers.scheduler.world import NODES, FakeLauncher, World, make_submit

NUM_JOBS = 8
NUM_STEPS = 120
CAPACITY = {node["node_id"]: node["slots"] for node in NODES}


class Crash(Exception):
    """kill -9 of the scheduler at this very place."""


class ConnectionCut(TemporaryError):
    """The connection to Postgres breaks here; the process lives on."""


class Trouble:
    """Whether to crash here; quiet once the storm is over."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_on = True

    def strike(self, probability: float) -> None:
        if self.is_on and self.random.random() < probability:
            raise Crash

    def strike_connection(self, probability: float) -> None:
        if self.is_on and self.random.random() < probability:
            raise self.random.choice([Crash, ConnectionCut])

    def strike_launcher(self, probability: float) -> None:
        """The launcher does not answer, whatever it has done."""
        if self.is_on and self.random.random() < probability:
            raise LauncherUnavailable("no answer")


class TroubledDatabase(Database):
    """Crashes, or is cut off, before a commit or right after it, when it is not known here."""

    trouble: Trouble

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        async with super().transaction() as tx:
            yield tx
            self.trouble.strike_connection(0.08)
        self.trouble.strike_connection(0.08)


class TroubledLauncher(FakeLauncher):
    """Crashes before and after each act, or does not say that it is done. What occupies a node's
    slots is known here for sure."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self.trouble = trouble
        self.complaints: list[str] = []

    async def free_ports(self, ports: Sequence[int]) -> set[int]:
        self.trouble.strike(0.03)
        return await super().free_ports(ports)

    async def observe(self, pods: Sequence[PodRef]) -> dict[str, Observation]:
        self.trouble.strike_launcher(0.05)
        return await super().observe(pods)

    async def launch(self, spec) -> None:
        self.trouble.strike(0.05)
        if spec.pod_id not in self.sights:
            sight = self.trouble.random.choice([Sight.CREATED, Sight.ALIVE])
            self.sights[spec.pod_id] = Observation(sight)
            self.specs[spec.pod_id] = spec
            self._weigh(spec.node_id)
        self.trouble.strike(0.05)
        self.trouble.strike_launcher(0.05)

    async def notify(self, pod: PodRef, notice) -> None:
        self.trouble.strike(0.05)
        await super().notify(pod, notice)
        self.trouble.strike(0.05)
        self.trouble.strike_launcher(0.05)

    async def kill(self, pods: Sequence[PodRef]) -> frozenset[str]:
        self.trouble.strike(0.05)
        gone = set()
        for pod in pods:
            if not self.trouble.is_on or self.trouble.random.random() < 0.7:
                gone.add(pod.pod_id)
                seen = self.sights.get(pod.pod_id)
                ended = seen is not None and seen.exit is not None
                now = Observation(Sight.ENDED, seen.exit) if ended else Observation(Sight.DEAD)
                self.sights[pod.pod_id] = now
                self.specs.pop(pod.pod_id, None)
        self.trouble.strike(0.05)
        self.trouble.strike_launcher(0.05)
        return frozenset(gone)

    def occupying(self) -> list[str]:
        """Pods of which a process may be left."""
        return sorted(pod for pod in self.specs if self.sights[pod].sight is not Sight.ENDED)

    def _weigh(self, node_id: str) -> None:
        load = sum(
            self.specs[pod].num_ranks
            for pod in self.occupying()
            if self.specs[pod].node_id == node_id
        )
        if load > CAPACITY[node_id]:
            self.complaints.append(f"{load} ranks on {node_id}, which has {CAPACITY[node_id]}")


class Chaos:
    def __init__(self, database: Database, seed: int) -> None:
        self.random = Random(seed)
        self.trouble = Trouble(self.random)
        database.__class__ = TroubledDatabase
        database.trouble = self.trouble
        self.launcher = TroubledLauncher(self.trouble)
        self.trouble.is_on = False
        self.world = World(database, self.launcher)
        self.commands: list = []
        self.broken: list[str] = []

    async def run(self) -> None:
        await self.world.register()
        self.trouble.is_on = True
        for _ in range(NUM_STEPS):
            try:
                await self._step()
            except Crash:
                self.world.restart()
            except ConnectionCut:
                pass  # the next round is that of the same process
            await self._check()
        await self._calm()
        await self._check()

    async def _step(self) -> None:
        act = self.random.choices(
            [self._round, self._pod, self._submit, self._command, self._time, self._repeat],
            [50, 25, 8, 8, 10, 5],
        )[0]
        await act()

    async def _round(self) -> None:
        self.world.loop.wake()
        await self.world.loop.round(self.world.platform)

    async def _pod(self) -> None:
        """Something happens to a pod."""
        pods = self.launcher.occupying()
        if not pods:
            return
        pod = self.random.choice(pods)
        seen = self.launcher.sights[pod]
        if seen.sight is Sight.CREATED:
            self.launcher.sights[pod] = Observation(Sight.ALIVE)
        elif seen.sight is Sight.ALIVE:
            outcomes = (
                ["interrupted"]
                if pod in self.launcher.notices
                else ["succeeded"] * 3 + ["failed", "dead"]
            )
            outcome = self.random.choice(outcomes)
            if outcome == "dead":
                self.launcher.sights[pod] = Observation(Sight.DEAD)
            else:
                self.launcher.end(pod, outcome)

    async def _submit(self) -> None:
        number = sum(isinstance(event.payload, JobSubmit) for event in self.commands)
        if number < NUM_JOBS:
            payload = make_submit(
                f"r{number}",
                resources={"devices": self.random.randint(1, 4)},
                priority=self.random.randint(0, 2),
                retries={"limit": self.random.randint(0, 3), "backoff_seconds": 0},
            )
            await self._deliver(make_event(payload))

    async def _command(self) -> None:
        """About any job, also one that is not there yet."""
        job_id = job_id_for("default", f"r{self.random.randrange(NUM_JOBS)}")
        kind = self.random.choice([JobCancel, JobStop, JobPause, JobPause, JobResume, JobResume])
        await self._deliver(make_event(kind(job_id=job_id)))

    async def _time(self) -> None:
        await self.world.clock.advance(self.random.uniform(0, 40))

    async def _repeat(self) -> None:
        if self.commands:
            await self._deliver(self.random.choice(self.commands))

    async def _deliver(self, event) -> None:
        if event not in self.commands:
            self.commands.append(event)
        commands = self.world.commands
        await deliver(self.world.database, commands.handlers, event, refusals=commands.refusals)

    async def _check(self) -> None:
        """No invariant is broken, and what is in memory is what is in the tables."""
        async with self.world.database.connection() as connection:
            true = await read(connection)
            self.broken += check(true.snapshot)
            known = self.world.loop.state
            if known is not None:
                now = await refresh(connection, known)
                wrong = {*await differences(connection, now)}
                wrong |= {"the jobs"} if now.jobs != true.jobs else set()
                self.broken += [f"in memory {item} is not as in the tables" for item in wrong]

    async def _calm(self) -> None:
        """No more trouble: every command is delivered, every pod ends well, time passes."""
        self.trouble.is_on = False
        for event in self.commands:
            await self._deliver(event)
        for number in range(NUM_JOBS):
            await self._deliver(make_event(JobResume(job_id=job_id_for("default", f"r{number}"))))
        for _ in range(200):
            await self.world.rounds(100)
            await self.world.clock.advance(50)
            pods = self.launcher.occupying()
            for pod in pods:
                if self.launcher.sights[pod].sight is not Sight.DEAD:
                    is_notified = pod in self.launcher.notices
                    self.launcher.end(pod, "interrupted" if is_notified else "succeeded")
            async with self.world.database.connection() as connection:
                left = await connection.fetchval(
                    "select count(*) from jobs where finished_at is null"
                )
            if left == 0 and not pods:
                return
        self.broken.append("the platform does not come to rest")


async def verdict(chaos: Chaos) -> list[str]:
    """Everything that must not have happened, as sentences."""
    wrong = [*chaos.broken, *chaos.launcher.complaints]
    wrong += [f"{pod} is left" for pod in chaos.launcher.occupying()]
    stories = defaultdict(list)
    for event in await emitted(chaos.world.database):
        if event.type.split(".")[0] in ("job", "run", "allocation"):
            stories[event.payload.job_id].append(event.payload)
    held: dict[tuple[str, int], list] = defaultdict(list)
    for job_id, story in stories.items():
        wrong += [f"{job_id}: {complaint}" for complaint in _read(story)]
        for payload in story:
            if payload.kind.type == "allocation.released":
                for slot in payload.slots:
                    interval = (payload.granted_at, payload.released_at)
                    held[(slot.node_id, slot.slot)].append(interval)
    for slot, intervals in held.items():
        intervals.sort()
        wrong += [
            f"{slot} was held twice at {later[0]}"
            for earlier, later in itertools.pairwise(intervals)
            if later[0] < earlier[1]
        ]
    return wrong


NEXT = {
    "": {"job.queued"},
    "job.queued": {"allocation.granted", "job.paused", "job.cancelled", "job.stopped"},
    "job.retrying": {"allocation.granted", "job.paused", "job.cancelled", "job.stopped"},
    "job.paused": {"resumed", "job.cancelled", "job.stopped"},
    "resumed": {"allocation.granted", "job.paused", "job.cancelled", "job.stopped"},
    "allocation.granted": {"run.starting"},
    "run.starting": {"run.started", "end"},
    "run.started": {"end"},
    "end": {"allocation.released"},
    "allocation.released": {
        *("job.succeeded", "job.failed", "job.cancelled", "job.stopped"),
        *("job.retrying", "job.paused"),
    },
    "job.succeeded": set(),
    "job.failed": set(),
    "job.cancelled": set(),
    "job.stopped": set(),
}
ENDS = {
    *("run.succeeded", "run.failed", "run.lost", "run.cancelled", "run.stopped"),
    "run.interrupted",
}
ASIDE = {"job.waiting", "job.cancelling", "job.stopping", "job.pausing"}
ASIDE |= {"run.unreachable", "run.waiting"}
FINAL = {"job.succeeded", "job.failed", "job.cancelled", "job.stopped"}


def _read(story: list) -> list[str]:
    """A job's events must be consistent."""
    wrong = []
    last = ""
    fence = attempt = 0
    for payload in story:
        name = payload.kind.type
        if name in ASIDE or (name == "job_request.rejected"):
            continue
        word = "end" if name in ENDS else name
        if name == "job.resumed":
            if payload.queued_at is None:
                continue  # a pause was withdrawn while its run ended
            word = "resumed"
        if word not in NEXT[last]:
            wrong.append(f"{name} after {last or 'nothing'}")
        last = word
        if name == "allocation.granted":
            if payload.fence <= fence or payload.attempt != attempt + 1:
                wrong.append(f"attempt {payload.attempt} with fence {payload.fence} after {fence}")
            fence, attempt = payload.fence, payload.attempt
        elif name.startswith("run.") and payload.fence != fence:
            wrong.append(f"{name} of another fence")
    if last and last not in FINAL:
        wrong.append(f"ends with {last}")
    return wrong
