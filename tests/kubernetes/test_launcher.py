"""The Kubernetes launcher on a real API server, with the rights of its chart and no others.

Nodes and their kubelets are kwok's; where a container's end matters, the test writes the status
that a kubelet writes.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drivetrain_schemas.pod_ends import exit_key, termination_message
from drivetrain_schemas.pods import PodExit, StopNotice
from services.scheduler.core.pods import EndKind, Sight
from services.scheduler.launchers.base import (
    LaunchBlocked,
    Launcher,
    LauncherUnavailable,
    LaunchRefused,
)
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import (
    Cluster,
    observed,
    pod_spec,
    ref,
    running,
    scheduler_kubeconfig,
    terminated,
)


@pytest.fixture
async def cluster(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Cluster]:
    kubeconfig = scheduler_kubeconfig(control_plane, namespace)
    running_cluster = Cluster(control_plane, namespace, kubeconfig, tmp_path)
    yield running_cluster
    await running_cluster.close()


async def until(launcher: Launcher, spec, sight: Sight, seconds: float = 30.0):
    """The observation, once the pod looks like this."""
    async with asyncio.timeout(seconds):
        while (seen := await observed(launcher, spec)).sight is not sight:
            await asyncio.sleep(0.05)
    return seen


def events_of(cluster: Cluster, spec) -> dict[str, str]:
    """What the platform has told of the pod."""
    path = f"/api/v1/namespaces/{cluster.namespace}/events"
    name = spec.pod_id.replace("_", "-")
    return {
        event["reason"]: event["message"]
        for event in cluster.control_plane.get(path).json()["items"]
        if event["involvedObject"]["name"] == name
        and event["source"].get("component") == "drivetrain-scheduler"
    }


def end_of(spec, **changes) -> PodExit:
    given = {"outcome": "succeeded", "ranks": (), "ended_at": datetime.now(UTC)}
    return PodExit(pod_id=spec.pod_id, **{**given, **changes})


async def test_a_pod_is_launched_once_adopted_and_killed(cluster: Cluster) -> None:
    node = cluster.kwok_node("a")
    spec = pod_spec("once", node)
    launcher, nodes = await cluster.launcher()
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        assert (await observed(launcher, spec)).sight is Sight.ABSENT
        await launcher.launch(spec)
        await launcher.launch(spec)
        await until(launcher, spec, Sight.ALIVE)
        pod = cluster.pod(spec)
        assert pod["spec"]["nodeName"] == node
        (secret,) = cluster.names("secrets")
        assert secret.startswith(pod["metadata"]["name"])

        after_restart, _ = await cluster.launcher()
        assert (await observed(after_restart, spec)).sight is Sight.ALIVE
        async with asyncio.timeout(30):
            while not await after_restart.kill([ref(spec)]):
                await asyncio.sleep(0.1)
        seen = await until(launcher, spec, Sight.DEAD)
        assert events_of(cluster, spec).keys() == {"EndedByPlatform"}
    assert seen.reason is None  # the platform itself ended it
    assert cluster.pod(spec) is None
    async with asyncio.timeout(30):
        while cluster.names("secrets"):  # goes with its pod
            await asyncio.sleep(0.1)


async def test_the_end_is_the_termination_message_and_the_rest_of_it_is_in_the_store(
    cluster: Cluster,
) -> None:
    spec = pod_spec("whole", cluster.kwok_node("a"))
    launcher, nodes = await cluster.launcher()
    end = end_of(spec, last_log="x" * 8000)
    message = termination_message(end)
    key = exit_key(spec.job_id, spec.attempt, spec.pod_id)
    await cluster.store.put(key, end.model_dump_json().encode())
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        await launcher.launch(spec)
        await until(launcher, spec, Sight.ALIVE)
        cluster.set_status(spec, terminated(0, message.decode()))
        seen = await until(launcher, spec, Sight.ENDED)
        assert seen.exit == end
        await launcher.remove(spec.job_id)
        assert (await observed(launcher, spec)).sight is Sight.ABSENT
    assert cluster.pod(spec) is None
    assert not await cluster.store.list("exits/")


async def test_an_end_is_found_in_the_store_when_the_pod_has_already_gone(
    cluster: Cluster,
) -> None:
    spec = pod_spec("gone", cluster.kwok_node("a"))
    end = end_of(spec, outcome="interrupted")
    key = exit_key(spec.job_id, spec.attempt, spec.pod_id)
    await cluster.store.put(key, end.model_dump_json().encode())
    launcher, _ = await cluster.launcher()
    assert (await observed(launcher, spec)).sight is Sight.ABSENT
    assert await launcher.kill([ref(spec)]) == [spec.pod_id]
    seen = await observed(launcher, spec)
    assert (seen.sight, seen.exit) == (Sight.ENDED, end)


async def test_a_deletion_by_others_is_a_disruption(cluster: Cluster) -> None:
    spec = pod_spec("drained", cluster.kwok_node("a"))
    launcher, nodes = await cluster.launcher()
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        await launcher.launch(spec)
        await until(launcher, spec, Sight.ALIVE)
        name = spec.pod_id.replace("_", "-")
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/eviction"
        cluster.control_plane.post(path, {"metadata": {"name": name}})
        seen = await until(launcher, spec, Sight.DEAD)
        assert seen.reason is not None
        assert seen.reason.kind is EndKind.DISRUPTED
        assert await launcher.kill([ref(spec)]) == [spec.pod_id]
        assert (await observed(launcher, spec)).reason == seen.reason


async def test_a_notice_is_an_annotation_and_then_a_deletion_with_its_grace(
    cluster: Cluster,
) -> None:
    """On a node without a kubelet, so that the pod stays."""
    spec = pod_spec("told", cluster.kwok_node("a"))
    launcher, nodes = await cluster.launcher()
    notice = StopNotice(reason="preempt", deadline_seconds=12.0)
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        await launcher.launch(spec)
        await until(launcher, spec, Sight.ALIVE)
        cluster.control_plane.kwok.freeze()
        try:
            await launcher.notify(ref(spec), notice)
            async with asyncio.timeout(20):
                while "deletionTimestamp" not in cluster.pod(spec)["metadata"]:
                    await asyncio.sleep(0.1)
            metadata = cluster.pod(spec)["metadata"]
            told = StopNotice.model_validate_json(metadata["annotations"]["drivetrain.dev/stop"])
            assert told == notice
            assert metadata["deletionGracePeriodSeconds"] == 12 + 20
            assert events_of(cluster, spec) == {"StopRequested": "reason: preempt; it has 12 s"}
            assert (await observed(launcher, spec)).sight is Sight.ALIVE
            assert await launcher.kill([ref(spec)]) == []  # never by force
            assert cluster.pod(spec) is not None
        finally:
            cluster.control_plane.kwok.thaw()
        await until(launcher, spec, Sight.DEAD)


async def test_a_pod_that_no_run_asks_for_is_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.scheduler.launchers.kubernetes.launcher.ORPHAN_SECONDS", 5.0)
    node = cluster.kwok_node("a")
    asked, orphan = pod_spec("asked", node), pod_spec("orphan", node)
    launcher, _ = await cluster.launcher()
    async with running(launcher.watch(lambda: None)):
        await launcher.launch(asked)
        await launcher.launch(orphan)
        async with asyncio.timeout(60):
            while cluster.pod(orphan) is not None:
                assert (await observed(launcher, asked)).sight is not Sight.DEAD
                await asyncio.sleep(0.1)
    assert cluster.pod(asked) is not None


async def test_a_full_quota_refuses_with_the_words_of_the_cluster(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    cluster.control_plane.post(path, quota)
    quota_path = f"{path}/few"
    async with asyncio.timeout(30):
        while "hard" not in cluster.control_plane.get(quota_path).json().get("status", {}):
            await asyncio.sleep(0.1)
    launcher, _ = await cluster.launcher()
    with pytest.raises(LaunchRefused) as refused:
        await launcher.launch(pod_spec("refused", "a"))
    assert refused.value.why.kind is EndKind.DISRUPTED
    assert "exceeded quota" in refused.value.why.detail


async def test_pods_are_accepted_where_only_restricted_ones_are(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    headers = {"Content-Type": "application/merge-patch+json"}
    patch = {"metadata": {"labels": labels}}
    cluster.control_plane.http.patch(path, json=patch, headers=headers).raise_for_status()
    code = {"uri": "s3://store/code", "sha256": "0" * 64}
    job = {"name": "a", "command": "true", "code": code}
    launcher, _ = await cluster.launcher()
    await launcher.launch(pod_spec("restricted", "a", job=job))
    as_the_image, _ = await cluster.launcher(run_as_user=None)
    with pytest.raises(LaunchRefused, match="violates PodSecurity") as refused:
        await as_the_image.launch(pod_spec("its-own-user", "a", job=job))
    assert refused.value.why.kind is EndKind.INVALID


async def test_without_rights_nothing_is_known_and_it_says_which_are_missing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    nobody = Cluster(control_plane, namespace, control_plane.user_kubeconfig("nobody"), tmp_path)
    launcher, nodes = await nobody.launcher()
    spec = pod_spec("nobody", "a")
    with pytest.raises(LaunchBlocked, match='cannot create resource "pods"'):
        await launcher.launch(spec)
    with pytest.raises(LauncherUnavailable, match="cannot be listed"):
        await observed(launcher, spec)
    with pytest.raises(LauncherUnavailable):
        await launcher.kill([ref(spec)])
    with pytest.raises(LauncherUnavailable, match="cannot be listed"):
        await nodes.nodes()
    await nobody.close()
