"""The failures of a cluster, each a real one, while a job trains in two pods.

Afterwards the job succeeds once, its losses and weights equal those of an undisturbed job bit for
bit, and nothing is lost, doubled or left.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests import s3_server
from tests.faults import evidence, strikes
from tests.faults.conftest import settled
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import NodeKind, TestNode, running_nodes
from tests.kubernetes.platform import KubernetesJob, KubernetesPlatform, running_platform
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(s3_server.BUILD_SECONDS + 600)
OUTAGE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Reference:
    losses: dict[int, float]
    weights: dict[str, bytes]


CheckAll = Callable[..., None]


@pytest.fixture(scope="module")
def kubernetes(
    control_plane: ControlPlane,
    s3: s3_server.RunningS3,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubernetesPlatform]:
    """Three nodes with one slot each: a run takes two, and one is spare."""
    namespace = control_plane.create_namespace(f"t{secrets.token_hex(4)}")
    kind = NodeKind(cpu="1", labels={"test": namespace})
    names = [f"{letter}-{namespace}" for letter in "abc"]
    with (
        running_nodes(control_plane, *names, kind=kind) as nodes,
        running_platform(
            control_plane, namespace, nodes, s3, tmp_path_factory.mktemp("platform")
        ) as platform,
    ):
        yield platform


@pytest.fixture(scope="module")
def reference(kubernetes: KubernetesPlatform) -> Reference:
    job = kubernetes.submit()
    assert job.wait_final()["state"] == "succeeded"
    weights = evidence.final_weights(job, kubernetes.objects)
    return Reference(evidence.check_losses(job, None), weights)


@pytest.fixture
def job(kubernetes: KubernetesPlatform, reference: Reference) -> KubernetesJob:
    """One that has written a checkpoint and has a good part before it."""
    wait_until(lambda: all(n.is_ready() for n in kubernetes.nodes), "all nodes are ready")
    submitted = kubernetes.submit()
    submitted.wait_for_strike()
    return submitted


@pytest.fixture
def check_all(kubernetes: KubernetesPlatform, reference: Reference) -> CheckAll:
    def check(job: KubernetesJob, *, attempts: int, seconds: float = 240.0) -> None:
        state = job.wait_final(seconds=seconds)
        assert state["state"] == "succeeded", job.timeline()[-5:]
        assert state["attempt"] == attempts
        evidence.check_losses(job, reference.losses)
        assert evidence.final_weights(job, kubernetes.objects) == reference.weights
        events = asyncio.run(settled(kubernetes.platform, job))
        evidence.check_sequences(events)
        evidence.check_succeeded_once(events, job.job_id)
        evidence.check_slots(events, job.job_id)
        assert evidence.check_charges(events, job.job_id) > 0
        evidence.check_nothing_left(job)
        kubernetes.check_pods_ended(job)
        restored = job.events("checkpoint.restored")
        assert [item["resumed_by_attempt"] for item in restored] == list(range(2, attempts + 1))

    return check


def node_of_last_pod(kubernetes: KubernetesPlatform, job: KubernetesJob) -> TestNode:
    return kubernetes.node_of(kubernetes.pods(job)[-1])


def test_the_first_process_of_a_pod_is_killed(job: KubernetesJob, check_all: CheckAll) -> None:
    """As by the kernel: the container ends with 137, and all its processes with it."""
    marked = evidence.processes_with_marker(f"{job.body}_1_")
    strikes.kill(marked)
    check_all(job, attempts=2)


def test_a_pod_is_deleted_by_an_operator(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    """It has its grace period: the run saves, and goes on without using a retry."""
    pod = kubernetes.pods(job)[-1]
    kubernetes.control_plane.http.delete(_path(pod)).raise_for_status()
    check_all(job, attempts=2)
    assert not job.events("run.failed")


def test_a_pod_is_deleted_by_force(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    """Its object is gone at once, before its processes are."""
    pod = kubernetes.pods(job)[-1]
    kubernetes.control_plane.http.request(
        "DELETE", _path(pod), json={"gracePeriodSeconds": 0}
    ).raise_for_status()
    check_all(job, attempts=2)


def test_a_node_loses_power_and_keeps_its_slots_until_it_is_gone(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    node = node_of_last_pod(kubernetes, job)
    node.power_off()
    try:
        wait_until(lambda: not node.is_ready(), "the node is not ready", every=0.3)
        wait_until(lambda: not job.ranks(), "the rest of the gang has ended", seconds=90)
        # In the API server the pod there still runs.
        assert job.state()["attempt"] == 1
        assert not job.events("allocation.released")
        node.remove()
        check_all(job, attempts=2)
    finally:
        node.start()


def test_a_node_is_marked_out_of_service(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    """The operator marks it as off: the cluster then removes its pods."""
    node = node_of_last_pod(kubernetes, job)
    node.power_off()
    try:
        wait_until(lambda: not node.is_ready(), "the node is not ready", every=0.3)
        node.mark_out_of_service()
        check_all(job, attempts=2)
    finally:
        node.remove()
        node.start()


def test_the_api_server_is_away_for_a_minute(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    ranks, step = job.ranks(), job.step()
    kubernetes.control_plane.apiserver.kill()
    away_until = time.monotonic() + OUTAGE_SECONDS
    try:
        job.wait_step(step + 20)
        assert job.ranks() == ranks
        time.sleep(away_until - time.monotonic())  # the failure itself lasts this long
    finally:
        kubernetes.control_plane.apiserver.start()
        kubernetes.control_plane.restart_clients()
    check_all(job, attempts=1)


def test_the_api_server_hangs(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    """Connections stay open, and nothing is answered."""
    step = job.step()
    kubernetes.proxy.hang()
    try:
        job.wait_step(step + 20)
    finally:
        kubernetes.proxy.go_on()
    check_all(job, attempts=1)


def test_etcd_is_killed(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    ranks, step = job.ranks(), job.step()
    kubernetes.control_plane.etcd.kill()
    try:
        job.wait_step(step + 20)
        assert job.ranks() == ranks
    finally:
        kubernetes.control_plane.etcd.start()
    check_all(job, attempts=1)


def test_the_scheduler_is_killed(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    """The next one finds the pods by a list, and starts none again."""
    strikes.kill_parts_during(job, ["scheduler"])
    check_all(job, attempts=1)


def test_a_kubelet_is_away_while_its_pod_ends(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    """The end is reported when it is back; until then the slots are held."""
    node = node_of_last_pod(kubernetes, job)
    node.kubelet.kill()
    try:
        ranks = job.ranks()
        wait_until(lambda: not job.ranks(), f"the ranks {ranks} have ended", seconds=120)
        assert not job.events("allocation.released")
    finally:
        node.kubelet.start()
    check_all(job, attempts=1)


def test_every_watch_is_cut_again_and_again(
    kubernetes: KubernetesPlatform, job: KubernetesJob, check_all: CheckAll
) -> None:
    before = kubernetes.proxy.num_connections
    while job.state()["state"] == "running":
        kubernetes.proxy.cut()
        time.sleep(0.5)  # the rate of the cuts
    assert kubernetes.proxy.num_connections > before + 3
    check_all(job, attempts=1)


def _path(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
