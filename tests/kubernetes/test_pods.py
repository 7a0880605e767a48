"""Pods of a run in a cluster: the shim as the first process of a container that really runs."""

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import PodSpec, StopNotice
from services.runtime.kafka_access import KafkaAccess as Broker
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import Observation
from services.scheduler.launchers.kubernetes import names
from services.scheduler.launchers.kubernetes.launcher import KubernetesLauncher
from services.standalone.ports import free_port
from tests import s3_server
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import (
    STORE_SECRET,
    STORE_URL,
    Cluster,
    Outside,
    observed,
    outside,
    pod_spec,
    ref,
    running,
    scheduler_kubeconfig,
)
from tests.kubernetes.nodes import NodeKind, TestNode, running_nodes


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane) -> Iterator[list[TestNode]]:
    with running_nodes(control_plane, "pods-a", "pods-b", kind=NodeKind(cpu="4")) as found:
        yield found


class Pods:
    """Launches jobs of one pod or more, and waits for how they end."""

    def __init__(
        self, launcher: KubernetesLauncher, nodes: list[TestNode], outside: Outside
    ) -> None:
        self.launcher = launcher
        self.nodes = nodes
        self.store = outside.store
        self._outside = outside

    def specs(self, name: str, command: list[str], *, num_pods: int = 1, **job) -> list[PodSpec]:
        spec = JobSpec.model_validate({"name": name, "command": command, **job})
        rendezvous = self.launcher.rendezvous(job_id_for("default", name), 1)
        port = free_port()  # pods of a test have the network of this machine
        specs = [
            pod_spec(
                name,
                self.nodes[index % len(self.nodes)].name,
                job=spec,
                pod_index=index,
                num_pods=num_pods,
                world_size=num_pods,
                rendezvous_address=rendezvous.address if num_pods > 1 else None,
                master_port=port,
            )
            for index in range(num_pods)
        ]
        return [self._outside.given(each) for each in specs]

    async def launch(self, *specs: PodSpec) -> None:
        await asyncio.gather(*(self.launcher.launch(spec) for spec in specs))

    async def until(self, spec: PodSpec, *sights: Sight) -> Observation:
        async with asyncio.timeout(90):
            while (seen := await observed(self.launcher, spec)).sight not in sights:
                await asyncio.sleep(0.1)
        return seen

    async def end(self, spec: PodSpec) -> Observation:
        return await self.until(spec, Sight.ENDED, Sight.DEAD)

    async def until_logged(self, spec: PodSpec, text: str) -> None:
        node = next(node for node in self.nodes if node.name == spec.node_id)
        async with asyncio.timeout(60):
            while text not in node.log(names.pod_name(spec.pod_id)):
                await asyncio.sleep(0.1)


@pytest.fixture
async def pods(
    control_plane: ControlPlane,
    namespace: str,
    nodes: list[TestNode],
    kafka: Broker,
    s3: s3_server.RunningS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Pods]:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    kubeconfig = scheduler_kubeconfig(control_plane, namespace)
    cluster = Cluster(control_plane, namespace, kubeconfig, tmp_path)
    async with outside(control_plane, namespace, kafka, s3) as reached:
        launcher, node_source = await cluster.launcher(
            environment_secret=STORE_SECRET,
            run_as_user=None,
            slot_cpu="100m",
            ends=reached.store,
        )
        async with running(launcher.watch(lambda: None), node_source.watch(lambda: None)):
            yield Pods(launcher, nodes, reached)
        await cluster.close()


async def test_a_program_runs_and_its_end_comes_back_whole(pods: Pods) -> None:
    words = "x" * 7000
    script = "import sys; print('x' * 7000); sys.exit(3)"
    (spec,) = pods.specs("fails", ["python", "-c", script])
    await pods.launch(spec)
    seen = await pods.end(spec)
    assert seen.exit is not None
    assert seen.exit.outcome == "failed"
    assert [(end.rank, end.exit_code) for end in seen.exit.ranks] == [(0, 3)]
    assert words in seen.exit.last_log  # more than a termination message holds


async def test_code_is_fetched_by_the_init_step_and_its_checksum_counts(pods: Pods) -> None:
    content = b"open('made', 'w').write('yes'); print('trained')"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    await pods.store.put("code/a.tar.gz", packed.getvalue())
    code = {
        "uri": f"{STORE_URL}/code/a.tar.gz",
        "sha256": hashlib.sha256(packed.getvalue()).hexdigest(),
    }
    (good,) = pods.specs("good", ["python", "train.py"], code=code)
    (bad,) = pods.specs("bad", ["python", "train.py"], code={**code, "sha256": "0" * 64})
    await pods.launch(good, bad)
    seen = await pods.end(good)
    assert seen.exit is not None
    assert seen.exit.outcome == "succeeded", seen
    seen = await pods.end(bad)
    assert seen.exit is not None
    assert "has another SHA-256" in seen.exit.detail


async def test_ranks_of_two_pods_find_each_other_by_name(pods: Pods) -> None:
    script = (
        "import os, torch.distributed as dist, torch\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(total)\n"
        "assert total.item() == 3\n"
        "dist.destroy_process_group()\n"
    )
    specs = pods.specs("meet", ["python", "-c", script], num_pods=2)
    await pods.launch(*specs)
    for spec in specs:
        seen = await pods.end(spec)
        assert seen.exit is not None, seen
        assert seen.exit.outcome == "succeeded", (seen.exit.detail, seen.exit.last_log)


async def test_a_notice_reaches_the_program_with_its_deadline(pods: Pods) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "open('/proc/1/fd/2', 'w').write('the program is ready')\n"
        "time.sleep(600)\n"
    )
    (spec,) = pods.specs("stops", ["python", "-c", script])
    await pods.launch(spec)
    await pods.until_logged(spec, "the program is ready")
    notice = StopNotice(reason="preempt", deadline_seconds=20.0)
    await pods.launcher.notify(ref(spec), notice)
    await pods.until_logged(spec, "stop notice: preempt, 20.0 s")
    seen = await pods.end(spec)
    assert seen.exit is not None, seen
    assert seen.exit.outcome == "interrupted"
    assert seen.reason is None


async def test_an_image_that_does_not_exist_ends_the_run_with_its_name(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.scheduler.launchers.kubernetes.starts._IMAGE_SECONDS", 1.0)
    (spec,) = pods.specs("missing", ["true"], image="missing/image:1")
    await pods.launch(spec)
    seen = await pods.end(spec)
    assert seen.sight is Sight.DEAD
    assert seen.reason is not None
    assert "missing/image:1" in seen.reason.detail
    async with asyncio.timeout(30):
        while not await pods.launcher.kill([ref(spec)]):
            await asyncio.sleep(0.1)
    assert (await observed(pods.launcher, spec)).reason == seen.reason


async def test_a_pod_on_a_node_without_a_word_is_unreachable_and_stays(
    pods: Pods, control_plane: ControlPlane
) -> None:
    with running_nodes(control_plane, "pods-lost") as (node,):
        (spec,) = pods.specs("lost", ["sleep", "600"])
        spec = spec.model_copy(update={"node_id": node.name})
        await pods.launch(spec)
        await pods.until(spec, Sight.ALIVE)
        node.power_off()
        async with asyncio.timeout(60):
            while not (seen := await observed(pods.launcher, spec)).unreachable:
                await asyncio.sleep(0.1)
        assert seen.sight is Sight.ALIVE
        assert "is not ready" in seen.unreachable
        assert await pods.launcher.kill([ref(spec)]) == []  # never by force
