"""The scheduler as a process on real Kafka and Postgres, with real pods: normal work, and kills."""

import asyncio
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from aiokafka import AIOKafkaProducer

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import JobCancel, JobSpec, JobSubmit
from drivetrain_schemas.pods import marker_of
from drivetrain_schemas.topics import EVENTS_JOBS
from services.runtime import cgroups, processes
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_source import KafkaSource
from services.runtime.topics import create_topics
from services.standalone.embedded import running_postgres
from tests.events import make_event
from tests.integration.scheduler.pods import left_of
from tests.platform_service import READ_TOKEN, out_record, parsed, produce

ROOT = Path(__file__).parents[3]
ONE_SLOT_NODES = [
    {"node_id": "n1", "pool": "default", "device_type": "cpu", "slots": 1},
    {"node_id": "n2", "pool": "default", "device_type": "cpu", "slots": 1},
]


def submit(request_id: str, command: list[str], **changes) -> JobSubmit:
    spec = JobSpec.model_validate(
        {"name": "test", "command": command, "resources": {"devices": 2}, **changes}
    )
    return JobSubmit(request_id=request_id, spec=spec, job_id=job_id_for("default", request_id))


class Scheduler:
    """The process, what it is sent, and what it has emitted so far."""

    def __init__(self, kafka: KafkaAccess, environment: dict[str, str], prefix: str) -> None:
        self.sent: list = []
        self._kafka = kafka
        self._environment = environment
        self._prefix = prefix
        self._process: Process | None = None
        member = f"reader-{secrets.token_hex(4)}"
        topics = [prefix + EVENTS_JOBS.name]
        self._source = KafkaSource(kafka, member, topics, member=member, max_records=500)

    async def start(self) -> None:
        await self._source.start()
        await self.start_process()

    async def start_process(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.scheduler.scheduler_process",
            cwd=ROOT,
            env=self._environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """kill -9, to the whole process group."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self._process.wait(), 30) == 0
        await self._source.stop()

    async def send(self, *payloads) -> None:
        await produce(self._kafka, self._prefix, *map(make_event, payloads))

    async def until(self, type_name: str, job_id: str, count: int = 1) -> list:
        """The payloads emitted about the job, once `count` of this type are among them."""
        async with asyncio.timeout(60):
            while True:
                about = [payload for payload in self.sent if payload.job_id == job_id]
                if sum(payload.kind.type == type_name for payload in about) >= count:
                    return about
                for records in (await self._source.poll(0.2)).values():
                    self.sent += [event.payload for event in parsed(records)]


@pytest.fixture
async def scheduler(kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, tmp_path: Path):
    dsn = await new_database(postgres_dsn)
    async with running_scheduler(kafka, dsn, topic_prefix, tmp_path) as scheduler:
        yield scheduler


async def new_database(postgres_dsn: str) -> str:
    name = f"scheduler_{secrets.token_hex(4)}"
    admin = await asyncpg.connect(postgres_dsn)
    await admin.execute(f"create database {name}")
    await admin.close()
    return urlsplit(postgres_dsn)._replace(path=f"/{name}").geturl()


@asynccontextmanager
async def running_scheduler(
    kafka: KafkaAccess, dsn: str, topic_prefix: str, directory: Path, **changes: str
) -> AsyncIterator[Scheduler]:
    await create_topics(kafka, topic_prefix)
    own = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA_SASL_USERNAME": kafka.username,
        "KAFKA_SASL_PASSWORD": kafka.password,
        "POSTGRES_DSN": dsn,
        "TOPIC_PREFIX": topic_prefix,
        "READ_TOKEN": READ_TOKEN,
        "NODES": json.dumps(ONE_SLOT_NODES),
        "PODS_DIRECTORY": str(directory / "pods"),
        **changes,
    }
    environment = {key: text for key, text in os.environ.items() if "DRIVETRAIN" not in key}
    environment |= {f"DRIVETRAIN_{key}": text for key, text in own.items()}
    scheduler = Scheduler(kafka, environment, topic_prefix)
    await scheduler.start()
    try:
        yield scheduler
        await scheduler.stop()
    finally:
        await asyncio.to_thread(leave_nothing, directory)


def leave_nothing(directory: Path) -> None:
    pods = frozenset(marker_of(pod) for pod in directory.glob("pods/job_*/*/pod_*"))
    assert processes.kill_marked(pods, 10) == pods
    for marker in pods:
        cgroups.remove(marker)


def types(sent: list) -> list[str]:
    return [payload.kind.type for payload in sent if payload.kind.type != "job.waiting"]


async def test_a_gang_of_two_pods_runs_to_success(scheduler: Scheduler, tmp_path: Path):
    code = f"import os; open(r'{tmp_path}/rank-' + os.environ['RANK'], 'x')"
    job = job_id_for("default", "r1")

    await scheduler.send(*[submit("r1", [sys.executable, "-c", code])] * 3)

    assert types(await scheduler.until("job.succeeded", job)) == [
        "job.queued",
        "allocation.granted",
        "run.starting",
        "run.started",
        "run.succeeded",
        "allocation.released",
        "job.succeeded",
    ]
    assert {name for name in os.listdir(tmp_path) if "rank" in name} == {"rank-0", "rank-1"}


async def test_a_cancel_on_another_partition_than_its_job_is_not_lost(
    scheduler: Scheduler, kafka: KafkaAccess, topic_prefix: str
):
    """Partitioners of other clients differ, and between partitions there is no order."""
    names = [f"r{number}" for number in range(8)]
    jobs = [job_id_for("default", name) for name in names]
    producer = AIOKafkaProducer(**kafka.options())
    async with producer:
        number = len(await producer.partitions_for(f"{topic_prefix}commands.jobs"))
        assert number > 1
        for name, job in zip(names, jobs, strict=True):
            for payload, shift in (JobCancel(job_id=job), 1), (submit(name, ["sleep", "600"]), 0):
                record = out_record(make_event(payload), topic_prefix)
                await producer.send_and_wait(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=(sum(job.encode()) + shift) % number,
                )
    for job in jobs:
        await scheduler.until("job.cancelled", job)


async def test_pods_outlive_the_scheduler_and_are_adopted(scheduler: Scheduler, tmp_path: Path):
    go = tmp_path / "go"
    waits = ["sh", "-c", f"echo $RANK >> {tmp_path}/starts; until [ -e {go} ]; do sleep 0.1; done"]
    job = job_id_for("default", "r1")
    await scheduler.send(submit("r1", waits))
    await scheduler.until("run.started", job)
    pods = [pod_id_for(job, 1, index) for index in (0, 1)]
    before = [shim_and_ranks(tmp_path, job, pod) for pod in pods]

    await scheduler.kill()
    await scheduler.send(submit("r2", ["true"]))
    await scheduler.start_process()
    second = job_id_for("default", "r2")
    waiting = (await scheduler.until("job.waiting", second))[-1]
    assert waiting.holders[0].job_id == job
    assert [shim_and_ranks(tmp_path, job, pod) for pod in pods] == before

    go.touch()
    sent = await scheduler.until("job.succeeded", job)
    assert sent[-1].attempts == 1
    assert sorted((tmp_path / "starts").read_text().split()) == ["0", "1"]
    await scheduler.until("job.succeeded", second)


async def test_a_killed_rank_ends_the_gang_and_the_job_continues(
    scheduler: Scheduler, tmp_path: Path
):
    go = tmp_path / "go"
    code = f"trap 'exit 75' TERM; until [ -e {go} ]; do sleep 0.1; done"
    job = job_id_for("default", "r1")
    retries = {"limit": 1, "backoff_seconds": 0}
    await scheduler.send(submit("r1", ["sh", "-c", code], retries=retries))
    await scheduler.until("run.started", job)
    pod = pod_id_for(job, 1, 1)

    _, rank = shim_and_ranks(tmp_path, job, pod)
    os.kill(rank, signal.SIGKILL)

    sent = await scheduler.until("run.started", job, count=2)
    assert types(sent)[4:] == [
        "run.failed",
        "allocation.released",
        "job.retrying",
        "allocation.granted",
        "run.starting",
        "run.started",
    ]
    failed = next(payload for payload in sent if payload.kind.type == "run.failed")
    assert (failed.rank, failed.signal) == (1, signal.SIGKILL)
    go.touch()
    assert (await scheduler.until("job.succeeded", job))[-1].attempts == 2


async def test_a_stop_notice_of_the_pod_s_own_making_is_no_request(scheduler: Scheduler):
    """Else a program that ends with 75 would be started again for ever, without a wait."""
    notice = '{"reason": "preempt", "deadline_seconds": 5}'
    job = job_id_for("default", "r1")
    retries = {"limit": 0, "backoff_seconds": 0.1}
    forge = ["sh", "-c", f"echo '{notice}' > stop.json; exit 75"]

    await scheduler.send(submit("r1", forge, retries=retries))

    sent = await scheduler.until("job.retrying", job, count=3)
    retrying = [payload for payload in sent if payload.kind.type == "job.retrying"]
    assert [payload.backoff_seconds for payload in retrying] == [0.1, 0.2, 0.4]


async def test_a_killed_shim_is_lost_and_nothing_of_it_is_left(
    scheduler: Scheduler, tmp_path: Path
):
    job = job_id_for("default", "r1")
    await scheduler.send(submit("r1", ["sleep", "600"], retries={"limit": 0}))
    await scheduler.until("run.started", job)
    pod = pod_id_for(job, 1, 0)

    shim, _ = shim_and_ranks(tmp_path, job, pod)
    os.kill(shim, signal.SIGKILL)

    sent = await scheduler.until("job.failed", job)
    assert types(sent)[4:] == ["run.lost", "allocation.released", "job.failed"]
    pods = {marker_of(tmp_path / "pods" / job / "1" / pod_id_for(job, 1, i)) for i in (0, 1)}
    assert not any(map(left_of, pods))


@pytest.mark.heavy
async def test_silence_is_suspected_while_every_partition_brings_the_beacons_back(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, tmp_path: Path
):
    """The shim of these tests sends no heartbeat, and a beacon that missed a partition no word."""
    dsn = await new_database(postgres_dsn)
    lease = {"LEASE_SECONDS": "2", "BEACON_SECONDS": "0.3"}
    job = job_id_for("default", "r1")
    async with running_scheduler(kafka, dsn, topic_prefix, tmp_path, **lease) as scheduler:
        await scheduler.send(submit("r1", ["sleep", "600"]))
        sent = await scheduler.until("run.suspected", job)
        assert types(sent)[-1] == "run.suspected"

        await scheduler.send(JobCancel(job_id=job, reason="enough"))
        assert types(await scheduler.until("job.cancelled", job))[-1] == "job.cancelled"


@pytest.mark.heavy
async def test_a_killed_postgres_is_waited_for(
    kafka: KafkaAccess, topic_prefix: str, tmp_path: Path
):
    go = tmp_path / "go"
    waits = ["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"]
    first, second = job_id_for("default", "r1"), job_id_for("default", "r2")
    async with (
        running_postgres(tmp_path / "postgres") as postgres,
        running_scheduler(kafka, postgres.dsn, topic_prefix, tmp_path) as scheduler,
    ):
        await scheduler.send(submit("r1", waits))
        await scheduler.until("run.started", first)
        process = scheduler.pid

        postgres.child.kill()
        await scheduler.send(submit("r2", ["true"]))
        go.touch()

        assert (await scheduler.until("job.succeeded", first))[-1].attempts == 1
        assert (await scheduler.until("job.succeeded", second))[-1].attempts == 1
        assert (scheduler.pid, scheduler.is_running) == (process, True)


async def test_a_cancelled_job_stops(scheduler: Scheduler):
    job = job_id_for("default", "r1")
    await scheduler.send(submit("r1", ["sleep", "600"]))
    await scheduler.until("run.started", job)

    await scheduler.send(JobCancel(job_id=job, reason="enough"))

    sent = await scheduler.until("job.cancelled", job)
    assert types(sent)[4:] == [
        "job.cancelling",
        "run.cancelled",
        "allocation.released",
        "job.cancelled",
    ]


def shim_and_ranks(directory: Path, job_id: str, pod_id: str) -> list[int]:
    """The processes of a pod that last: its shim, then the shim's children."""
    pod = directory / "pods" / job_id / "1" / pod_id
    shim = json.loads((pod / "identity.json").read_text())["pid"]
    marked = left_of(marker_of(pod))
    return [shim, *sorted(pid for pid in marked if _parent(pid) == shim)]


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat[stat.rindex(")") + 2 :].split()[1])
