"""1,000 jobs of one device and one of 512 devices, placed on 1,000 nodes by a real API server.

From the first submission through Kafka until the scheduler has seen every pod running. etcd, API
server, controller-manager and kube-scheduler are real; nodes and the life of pods are kwok's. The
peer is the same pods without Drivetrain: created with no node named, 32 at a time, and bound by
kube-scheduler alone. It has no queue, no Kafka, no Postgres, no gang, and no Secret per pod.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Row, options, publish, skip
from benchmarks.scheduler_load import records, send, submission, until
from drivetrain_schemas.jobs import JobSubmit
from services.runtime import logs
from services.runtime.directory_store import DirectoryStore
from services.runtime.kafka_access import KafkaAccess
from services.runtime.service import Running
from services.runtime.topics import create_topics
from services.scheduler.launchers.kubernetes.cluster import NodeRules, PodRules
from services.scheduler.launchers.kubernetes.ends import Ends
from services.scheduler.launchers.kubernetes.launcher import KubernetesLauncher
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from services.scheduler.settings import SchedulerSettings
from services.scheduler.wiring import assemble
from services.standalone.embedded import running_kafka, running_postgres
from tests.kubernetes import tools
from tests.kubernetes.control_plane import KWOK_ANNOTATION, ControlPlane, running_control_plane
from tests.kubernetes.launching import api_of, scheduler_kubeconfig
from tests.platform_service import running, service_environment

TITLE = "Placing on a cluster"
MEASURES = (
    "services/scheduler/core",
    "services/scheduler/launchers/kubernetes",
    "services/scheduler/loop.py",
    "services/scheduler/pods.py",
)
NOTES = """
A real API server, etcd, controller-manager and kube-scheduler, nodes and pods of kwok, everything
on one machine (needs `make kubernetes-tools`): no image is pulled and no program starts. From the
first submission in Kafka until the scheduler has seen every pod run. The peer is the same pods
without Drivetrain, bound by kube-scheduler alone: no queue, no Kafka, no Postgres, no gang, no
Secret for each pod.
"""

NUM_NODES = 1000
NUM_JOBS = 1000
GANG_DEVICES = 512
DEVICES = 8  # of a node
DEVICE = "nvidia.com/gpu"
PREFIX = "placing."
NAMESPACE, PEERS = "placing", "peers"
CONCURRENCY = 32


def main() -> None:
    given = options("kubernetes_placing", "Placing jobs on a cluster of 1,000 nodes")
    built = tools.find_tools()
    if built is None:
        skip(tools.MISSING)
    logs.configure("bench", "error")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    rows = asyncio.run(measure(built, *((100, 100, 64) if given.quick else _WHOLE)))
    publish(rows, given, ["kubernetes-asyncio", "aiokafka", "asyncpg"])


_WHOLE = (NUM_NODES, NUM_JOBS, GANG_DEVICES)


async def measure(built: Path, num_nodes: int, num_jobs: int, gang_devices: int) -> list[Row]:
    num_pods = gang_devices // DEVICES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kubernetes").mkdir()
        with running_control_plane(built, folder / "kubernetes") as control_plane:
            control_plane.start_kwok()
            await create_nodes(control_plane, num_nodes)
            peer_jobs = await peer(control_plane, num_jobs, 1)
            peer_gang = await peer(control_plane, num_pods, DEVICES)
            async with scheduler(control_plane, folder) as (access, process):
                singles = [submission(f"one-{index}") for index in range(num_jobs)]
                jobs = await placed(access, process, singles)
                gang = await placed(access, process, [submission("gang", gang_devices)])
    where = f"{num_nodes:,} nodes of {DEVICES} devices"
    return [
        row("placing.jobs", f"{num_jobs:,} jobs of one device, {where}", jobs, peer_jobs, num_jobs),
        row(
            "placing.gang", f"a gang of {gang_devices} devices, {where}", gang, peer_gang, num_pods
        ),
    ]


def row(name: str, what: str, ours: float, peers: float, num_pods: int) -> Row:
    return Row(
        id=name,
        what=f"{what}: until {num_pods:,} pods run",
        ours=f"{ours:.1f} s ({num_pods / ours:.0f} pods/s)",
        peer=f"{peers:.1f} s ({num_pods / peers:.0f} pods/s)",
        ratio=ours / peers,
        target="",
        met=True,
    )


async def create_nodes(control_plane: ControlPlane, number: int) -> None:
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", DEVICE: str(DEVICES)}
    nodes = [
        {
            "metadata": {"name": f"node-{index:04}", "annotations": {KWOK_ANNOTATION: "fake"}},
            "status": {"allocatable": capacity, "capacity": capacity},
        }
        for index in range(number)
    ]
    await create(control_plane, "/api/v1/nodes", nodes)
    await _until_rows(control_plane, "/api/v1/nodes", "Ready", number)


@asynccontextmanager
async def scheduler(
    control_plane: ControlPlane, folder: Path
) -> AsyncIterator[tuple[KafkaAccess, Running]]:
    """The scheduler, serving, with the rights of its chart. Pods of kwok send no heartbeats."""
    control_plane.create_namespace(NAMESPACE)
    api = await api_of(scheduler_kubeconfig(control_plane, NAMESPACE))
    nodes = KubernetesNodes(api, NodeRules())
    rules = PodRules(image="training", namespace=NAMESPACE)
    launcher = KubernetesLauncher(api, rules, Ends(DirectoryStore(folder / "objects")), nodes)
    async with (
        running_postgres(folder / "postgres") as postgres,
        running_kafka(folder / "kafka") as broker,
    ):
        access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
        await create_topics(access, PREFIX)
        settings = SchedulerSettings.model_validate(
            {
                **service_environment(access, postgres.dsn, PREFIX),
                "lease_seconds": 86_400,
            }
        )
        async with running(assemble(settings, launcher, nodes)) as process:
            yield access, process
    await api.close()


async def placed(access: KafkaAccess, process: Running, submissions: Sequence[JobSubmit]) -> float:
    """Seconds until every one of these jobs runs, as the scheduler has recorded it."""
    began = time.monotonic()
    await send(access, records(PREFIX, submissions))
    running_jobs = "select count(*) = $1 from jobs where state = 'running' and job_id = any($2)"
    names = [each.job_id for each in submissions]
    await until(process, running_jobs, len(names), names)
    return time.monotonic() - began


async def peer(control_plane: ControlPlane, num_pods: int, devices: int) -> float:
    """Seconds until that many pods run that kube-scheduler has placed; they are deleted again."""
    namespace = control_plane.create_namespace(f"{PEERS}-{devices}")
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {
        "name": "pod",
        "image": "training",
        "resources": {
            "requests": {"cpu": str(devices), "memory": f"{devices}Gi"},
            "limits": {DEVICE: str(devices)},
        },
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    pods = [{"metadata": {"name": f"pod-{index}"}, "spec": spec} for index in range(num_pods)]
    began = time.monotonic()
    await create(control_plane, path, pods)
    await _until_rows(control_plane, path, "Running", num_pods)
    seconds = time.monotonic() - began
    control_plane.http.request("DELETE", path, json={"gracePeriodSeconds": 0})
    await _until_rows(control_plane, path, "", 0)
    return seconds


async def create(control_plane: ControlPlane, path: str, objects: Sequence[Any]) -> None:
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(content: Any) -> None:
        async with slots:
            await asyncio.to_thread(control_plane.post, path, content)

    await asyncio.gather(*(one(content) for content in objects))


async def _until_rows(control_plane: ControlPlane, path: str, word: str, number: int) -> None:
    """Until that many objects there have this word in their row, as kubectl shows it."""
    headers = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}

    def count() -> int:
        query = f"{path}?includeObject=None&resourceVersion=0"
        rows = control_plane.http.get(query, headers=headers).json()["rows"] or []
        return sum(1 for each in rows if not word or word in each["cells"])

    while await asyncio.to_thread(count) != number:
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
