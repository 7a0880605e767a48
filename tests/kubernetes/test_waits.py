"""What keeps pods from running on a real API server: told in its words, and bounded."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobState
from drivetrain_schemas.runs import WaitCause
from services.scheduler.core.pods import Sight
from services.scheduler.core.waits import Wait
from services.scheduler.launchers.base import LaunchBlocked, Launcher
from services.scheduler.launchers.kubernetes import manifest
from services.scheduler.launchers.kubernetes.cluster import PodRules
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import World, make_submit
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import (
    RULES,
    Cluster,
    observed,
    pod_spec,
    ref,
    running,
    scheduler_kubeconfig,
)

# The reason is there so soon after the cluster's own word.
SECONDS = 5.0
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture
async def cluster(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Cluster]:
    kubeconfig = scheduler_kubeconfig(control_plane, namespace)
    made = Cluster(control_plane, namespace, kubeconfig, tmp_path)
    yield made
    await made.close()
    control_plane.http.delete(f"{WEBHOOKS}/{namespace}")


def without_the_right(cluster: Cluster) -> None:
    verbs = [verb for verb in RULES[0]["verbs"] if verb != "create"]
    role = {"metadata": {"name": "scheduler"}, "rules": [{**RULES[0], "verbs": verbs}]}
    path = f"{RBAC}/{cluster.namespace}/roles/scheduler"
    assert cluster.control_plane.http.put(path, json=role).is_success


def with_the_right(cluster: Cluster) -> None:
    role = {"metadata": {"name": "scheduler"}, "rules": RULES}
    path = f"{RBAC}/{cluster.namespace}/roles/scheduler"
    assert cluster.control_plane.http.put(path, json=role).is_success


def with_a_quota_of_limits(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": {"limits.cpu": "100"}}}
    cluster.control_plane.post(path, quota)


def without_the_quota(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas/compute"
    assert cluster.control_plane.http.delete(path).is_success


def with_a_webhook_that_is_down(cluster: Cluster) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    webhook = {
        "name": "policy.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "namespaceSelector": selector,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 2,
    }
    body = {"metadata": {"name": cluster.namespace}, "webhooks": [webhook]}
    cluster.control_plane.post(WEBHOOKS, body)


def without_the_webhook(cluster: Cluster) -> None:
    path = f"{WEBHOOKS}/{cluster.namespace}"
    assert cluster.control_plane.http.delete(path).is_success


def end_the_namespace(cluster: Cluster) -> None:
    """A finalizer of ours keeps it terminating."""
    path = f"/api/v1/namespaces/{cluster.namespace}"
    held = {"metadata": {"name": "held", "finalizers": ["test.example/held"]}}
    cluster.control_plane.post(f"{path}/configmaps", held)
    assert cluster.control_plane.http.delete(path).is_success


def make_the_account(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    cluster.control_plane.post(path, {"metadata": {"name": "jobs"}})


def make_the_class(cluster: Cluster) -> None:
    body = {"metadata": {"name": f"high-{cluster.namespace}"}, "value": 10}
    cluster.control_plane.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)


def as_it_is(_: Cluster) -> None:
    """Nothing."""


REFUSALS: dict[str, tuple[Any, Any, str, str]] = {
    "right": (
        *(without_the_right, with_the_right, "access rules (RBAC)"),
        'cannot create resource "pods"',
    ),
    "quota": (
        *(with_a_quota_of_limits, without_the_quota, "quota compute"),
        "must specify limits.cpu",
    ),
    "webhook": (
        *(with_a_webhook_that_is_down, without_the_webhook, "webhook policy.example.com"),
        "connection refused",
    ),
    "account": (
        *(as_it_is, make_the_account, "admission plugin ServiceAccount"),
        'serviceaccount "jobs" not found',
    ),
    "class": (
        *(as_it_is, make_the_class, "admission plugin Priority"),
        "no PriorityClass with name",
    ),
}


async def launched(launcher: Launcher, spec: Any) -> Wait | None:
    try:
        await launcher.launch(spec)
    except LaunchBlocked as blocked:
        return blocked.wait
    return None


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_refusal_is_told_by_whom_and_in_which_words_until_it_is_mended(
    cluster: Cluster, what: str
) -> None:
    break_it, mend_it, by, words = REFUSALS[what]
    rules = {
        "account": {"service_account": "jobs"},
        "class": {"priority_class": f"high-{cluster.namespace}"},
    }
    launcher, _ = await cluster.launcher(**rules.get(what, {}))
    break_it(cluster)
    number = 0
    async with asyncio.timeout(30):  # the API server's own caches
        while True:
            number += 1
            spec = pod_spec(f"blocked-{number}", "a")
            wait = await launched(launcher, spec)
            if wait is not None:
                break
            await asyncio.sleep(0.2)
    assert (wait.cause, wait.by) == (WaitCause.REFUSED, by)
    assert words in wait.detail
    # Given up, it is proven never to have been.
    assert await launcher.kill([ref(spec)]) == [spec.pod_id]
    mend_it(cluster)
    async with asyncio.timeout(30):
        while await launched(launcher, spec) is not None:
            await asyncio.sleep(0.2)
    assert cluster.pod(spec) is not None


async def test_a_namespace_that_is_being_deleted_refuses(cluster: Cluster) -> None:
    launcher, _ = await cluster.launcher()
    end_the_namespace(cluster)
    async with asyncio.timeout(30):
        while (wait := await launched(launcher, pod_spec("late", "a"))) is None:
            await asyncio.sleep(0.2)
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps/held"
    patch = [{"op": "remove", "path": "/metadata/finalizers"}]
    headers = {"Content-Type": "application/json-patch+json"}
    assert cluster.control_plane.http.patch(path, json=patch, headers=headers).is_success
    # Its roles may be gone before the namespace is.
    assert wait.by in ("admission plugin NamespaceLifecycle", "access rules (RBAC)")


async def until_it_waits(launcher: Launcher, spec: Any, cause: WaitCause) -> Wait:
    """Told within seconds."""
    began = time.monotonic()
    while (wait := (await observed(launcher, spec)).wait) is None or wait.cause is not cause:
        assert time.monotonic() < began + SECONDS, f"nothing but {wait} is told"
        await asyncio.sleep(0.05)
    return wait


def created_by_others(cluster: Cluster, spec: Any, **more: Any) -> None:
    """The pod as it is after a webhook of the cluster has changed it."""
    rules = PodRules(image="drivetrain/training", namespace=cluster.namespace)
    made = manifest.pod(spec, rules, "cafe")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    cluster.control_plane.post(path, {**made, "spec": {**made["spec"], **more}})


async def test_gates_and_a_scheduler_that_says_nothing_are_told(cluster: Cluster) -> None:
    launcher, nodes = await cluster.launcher()
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    gated, alone = pod_spec("gated", "a"), pod_spec("alone", "a")
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        created_by_others(cluster, gated, schedulingGates=gates)
        created_by_others(cluster, alone, schedulerName="nobody")
        wait = await until_it_waits(launcher, gated, WaitCause.GATED)
        assert wait.by == "kueue.x-k8s.io/admission"
        wait = await until_it_waits(launcher, alone, WaitCause.NOT_SCHEDULED)
        assert "(nobody) has not answered" in wait.detail


async def test_a_place_that_is_not_there_is_told_in_the_words_of_the_scheduler(
    cluster: Cluster,
) -> None:
    launcher, nodes = await cluster.launcher()
    spec = pod_spec("nowhere", "no-such-node")
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        await launcher.launch(spec)
        wait = await until_it_waits(launcher, spec, WaitCause.NOT_SCHEDULED)
        while "cannot place" not in wait.detail:
            wait = await until_it_waits(launcher, spec, WaitCause.NOT_SCHEDULED)
            await asyncio.sleep(0.05)
    assert "available" in wait.detail


async def test_an_image_is_pulled_and_then_cannot_be(cluster: Cluster) -> None:
    node = cluster.kwok_node("a")
    spec = pod_spec("image", node)
    launcher, nodes = await cluster.launcher()
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        async with asyncio.timeout(30):
            while node not in {each.node_id for each in await nodes.nodes() if each.is_schedulable}:
                await asyncio.sleep(0.1)
        assert cluster.control_plane.kwok is not None
        cluster.control_plane.kwok.freeze()
        try:
            await launcher.launch(spec)
            wait = await until_it_waits(launcher, spec, WaitCause.PULLING)
            assert "drivetrain/training" in wait.detail
            waiting = {"reason": "ErrImagePull", "message": "registry.example: i/o timeout"}
            container = {"name": "pod", "image": "x", "imageID": "", "ready": False}
            state = {"restartCount": 0, "state": {"waiting": waiting}}
            cluster.set_status(spec, {"containerStatuses": [{**container, **state}]})
            wait = await until_it_waits(launcher, spec, WaitCause.PULL_FAILED)
            assert "i/o timeout" in wait.detail
            seen = await observed(launcher, spec)
            assert (seen.sight, seen.reason) == (Sight.CREATED, None)
        finally:
            cluster.control_plane.kwok.thaw()


async def test_a_job_gives_its_slots_back_and_goes_on_by_itself_once_it_is_mended(
    cluster: Cluster, database: OpenDatabase
) -> None:
    """The whole way from the API server to the events of the job."""
    node = cluster.kwok_node("a")
    launcher, source = await cluster.launcher(priority_class=f"high-{cluster.namespace}")
    nodes = [{"node_id": node, "slots": 1}]
    any_launcher: Any = launcher
    job_id = job_id_for("default", "r1")
    async with running(launcher.watch(lambda: None), source.watch(lambda: None)):
        world = World(await database("scheduler"), any_launcher, nodes=nodes)
        await world.register()
        await world.submit(make_submit(retries={"limit": 0}))
        await world.rounds()
        (told,) = [each for each in await world.emitted() if each.kind.type == "run.waiting"]
        assert (told.cause, told.by) == (WaitCause.REFUSED, "admission plugin Priority")
        for _ in range(45):
            await world.clock.advance(3)
            await world.rounds()
        sent = {each.kind.type: each for each in await world.emitted()}
        released = sent["allocation.released"]
        assert released.paid_ends_at == released.granted_at
        assert "no PriorityClass with name" in sent["job.waiting"].detail
        assert (await world.job(job_id)).state is JobState.QUEUED

        make_the_class(cluster)
        async with world.database.transaction() as tx:
            await tx.connection.execute("update jobs set not_before_at = now()")
        async with asyncio.timeout(60):
            while (await world.job(job_id)).state is not JobState.RUNNING:
                await world.clock.advance(3)
                await world.rounds()
                await asyncio.sleep(0.1)
