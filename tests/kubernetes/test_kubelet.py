"""The test's kubelet does what the launcher's tests rely on: pods really run, and really end."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import EVICT, OOM_KILL
from tests.kubernetes.nodes import NodeKind, TestNode, running_nodes
from tests.waiting import wait_until

Object = dict[str, Any]
TERMINAL = ("Succeeded", "Failed")


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[TestNode]:
    name = f"n{secrets.token_hex(3)}"
    with running_nodes(control_plane, name, kind=NodeKind(devices=2)) as nodes:
        yield nodes[0]


class Pod:
    """A pod bound to a node, in the test's namespace."""

    def __init__(
        self, control_plane: ControlPlane, namespace: str, node: TestNode, script: str, **spec: Any
    ) -> None:
        self._control_plane = control_plane
        metadata = {"name": f"p{secrets.token_hex(3)}", **spec.pop("metadata", {})}
        container = {
            "name": "main",
            "image": "any",
            "command": ["sh", "-c", script],
            **spec.pop("container", {}),
        }
        pods = f"/api/v1/namespaces/{namespace}/pods"
        content = {
            "metadata": metadata,
            "spec": {
                "nodeName": node.name,
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **spec,
            },
        }
        self.name = metadata["name"]
        self.node = node
        self.path = f"{pods}/{self.name}"
        control_plane.post(pods, content)

    def read(self) -> Object | None:
        answer = self._control_plane.get(self.path)
        return answer.json() if answer.is_success else None

    def patch(self, **metadata: Any) -> None:
        content = {"metadata": metadata}
        headers = {"content-type": "application/merge-patch+json"}
        self._control_plane.http.patch(
            self.path, content=json.dumps(content), headers=headers
        ).raise_for_status()

    def delete(self) -> None:
        self._control_plane.http.delete(self.path).raise_for_status()

    def wait_phase(self, *phases: str) -> Object:
        def reached() -> Object | None:
            pod = self.read()
            assert pod is not None, f"{self.name} has gone"
            return pod["status"] if pod["status"]["phase"] in phases else None

        return wait_until(reached, f"{self.name} is {phases}", every=0.05)

    def wait_log(self, text: str) -> None:
        wait_until(lambda: text in self.log(), f"{self.name} writes {text!r}", every=0.05)

    def wait_gone(self) -> None:
        wait_until(lambda: self.read() is None, f"{self.name} has gone", every=0.05)

    def log(self) -> str:
        return self.node.log(self.name)


def terminated(status: Object) -> Object:
    found: Object = status["containerStatuses"][0]["state"]["terminated"]
    return found


@pytest.fixture
def run(control_plane: ControlPlane, namespace: str, node: TestNode) -> Any:
    def start(script: str, **spec: Any) -> Pod:
        return Pod(control_plane, namespace, node, script, **spec)

    return start


def test_a_command_runs_with_its_environment_volumes_and_init_container(
    control_plane: ControlPlane, namespace: str, run: Any
) -> None:
    base = f"/api/v1/namespaces/{namespace}"
    control_plane.post(
        f"{base}/secrets", {"metadata": {"name": "s"}, "stringData": {"key": "hidden"}}
    )
    control_plane.post(f"{base}/configmaps", {"metadata": {"name": "c"}, "data": {"FROM": "map"}})
    field = {"fieldRef": {"fieldPath": "status.podIP"}}
    data = {"name": "data", "mountPath": "/data"}
    pod = run(
        'echo "$GREETING $FROM $IP"; cat /data/made /secret/key; hostname; id -u; pwd;'
        " python -c 'import drivetrain; print(1)';"
        " touch /usr/bin/x || echo read-only; printf done >/dev/termination-log; exit 3",
        hostname="pod-0",
        securityContext={"runAsUser": 10001},
        volumes=[
            {"name": "data", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": "s"}},
        ],
        initContainers=[
            {
                "name": "first", "image": "any", "volumeMounts": [data],
                "command": ["sh", "-c", "echo made by init > /data/made"],
            }
        ],
        container={
            "env": [
                {"name": "WHO", "value": "you"},
                {"name": "GREETING", "value": "hello $(WHO)"},
                {"name": "IP", "valueFrom": field},
            ],
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "volumeMounts": [data, {"name": "secret", "mountPath": "/secret"}],
            "workingDir": "/data",
        },
    )  # fmt: skip
    status = pod.wait_phase(*TERMINAL)
    lines = pod.log().splitlines()
    assert f"hello you map {status['podIP']}" in lines
    assert lines[1:6] == ["made by init", "hiddenpod-0", "10001", "/data", "1"]
    assert lines[-1] == "read-only"
    assert terminated(status)["exitCode"] == 3
    assert terminated(status)["message"] == "done"
    assert status["phase"] == "Failed"


def test_a_failed_init_container_fails_the_pod_and_the_main_one_never_starts(run: Any) -> None:
    first = {"name": "first", "image": "any", "command": ["sh", "-c", "exit 7"]}
    pod = run("echo started", initContainers=[first])
    status = pod.wait_phase(*TERMINAL)
    assert status["phase"] == "Failed"
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    assert "started" not in pod.log()


def test_a_deleted_pod_gets_sigterm_and_its_object_goes_with_its_processes(run: Any) -> None:
    pod = run(
        "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        terminationGracePeriodSeconds=30,
    )
    pod.wait_log("ready")
    pod.delete()
    pod.wait_gone()
    assert "told" in pod.log()


def test_after_the_grace_period_it_is_killed(run: Any) -> None:
    pod = run("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    pod.wait_log("ready")
    # The finalizer keeps the object, so that its last status can be read.
    pod.patch(finalizers=["drivetrain.test/kept"])
    pod.delete()
    status = pod.wait_phase(*TERMINAL)
    assert terminated(status)["exitCode"] == 137
    assert terminated(status)["reason"] == "Error"


def test_annotations_reach_the_pod_while_it_runs(run: Any) -> None:
    item = {"path": "stop", "fieldRef": {"fieldPath": "metadata.annotations['stop']"}}
    pod = run(
        "echo ready; until [ -s /notice/stop ]; do sleep 0.05; done; cat /notice/stop",
        volumes=[{"name": "notice", "downwardAPI": {"items": [item]}}],
        container={"volumeMounts": [{"name": "notice", "mountPath": "/notice"}]},
    )
    pod.wait_log("ready")
    pod.patch(annotations={"stop": "a reason"})
    assert pod.wait_phase(*TERMINAL)["phase"] == "Succeeded"
    assert "a reason" in pod.log()


def test_out_of_memory_and_eviction_are_reported_as_by_a_real_kubelet(run: Any) -> None:
    oom, evicted = run("sleep 1000"), run("sleep 1000")
    for pod in (oom, evicted):
        pod.wait_phase("Running")
    oom.patch(annotations={OOM_KILL: "true"})
    evicted.patch(annotations={EVICT: "true"})
    ended = terminated(oom.wait_phase(*TERMINAL))
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    assert evicted.wait_phase(*TERMINAL)["reason"] == "Evicted"


def test_a_missing_image_a_missing_command_and_too_many_devices(run: Any) -> None:
    no_image = run("true", container={"image": "missing/it:1"})
    no_command = run("", container={"command": ["no-such-program"]})
    wanted = {"limits": {"nvidia.com/gpu": "3"}}
    too_big = run("true", container={"resources": wanted})

    def waits() -> bool:
        statuses = (no_image.read() or {})["status"].get("containerStatuses", [])
        return bool(statuses) and statuses[0]["state"].get("waiting", {}).get("reason") in (
            "ErrImagePull", "ImagePullBackOff",
        )  # fmt: skip

    wait_until(waits, "the image is missing", every=0.05)
    ended = terminated(no_command.wait_phase(*TERMINAL))
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert too_big.wait_phase(*TERMINAL)["reason"] == "OutOfnvidia.com/gpu"
    no_image.delete()
    no_image.wait_gone()


def test_pods_of_a_headless_service_find_each_other_by_name(
    control_plane: ControlPlane, namespace: str, run: Any
) -> None:
    spec = {"clusterIP": "None", "selector": {"run": "r"}, "publishNotReadyAddresses": True}
    services = f"/api/v1/namespaces/{namespace}/services"
    control_plane.post(services, {"metadata": {"name": "r"}, "spec": spec})
    common = {"metadata": {"labels": {"run": "r"}}, "subdomain": "r"}
    server = run(
        "python -c \"import socket; s = socket.create_server((socket.gethostname(), 24242));"
        " print('ready', flush=True); c, _ = s.accept(); c.sendall(b'hello')\"",
        hostname="pod-0", **common,
    )  # fmt: skip
    server.wait_log("ready")
    client = run(
        "until getent hosts pod-0.r; do sleep 0.05; done; python -c \"import socket;"
        " print(socket.create_connection(('pod-0.r', 24242)).recv(9))\"",
        hostname="pod-1", **common,
    )  # fmt: skip
    assert client.wait_phase(*TERMINAL)["phase"] == "Succeeded", client.log()
    assert "hello" in client.log()


def test_pods_outlive_the_kubelet_and_are_adopted(run: Any, node: TestNode) -> None:
    ends_meanwhile = run("echo ready; until [ -e /data/go ]; do sleep 0.05; done; exit 5",
        volumes=[{"name": "data", "emptyDir": {}}],
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    )  # fmt: skip
    # On a busy machine a second may pass between its SIGTERM and its answer.
    goes_on = run("trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        terminationGracePeriodSeconds=60,
    )  # fmt: skip
    for pod in (ends_meanwhile, goes_on):
        pod.wait_log("ready")
    node.kubelet.kill()
    uid = (ends_meanwhile.read() or {})["metadata"]["uid"]
    (node.directory / "pods" / uid / "volumes" / "data" / "go").touch()
    goes_on.delete()
    node.kubelet.start()
    assert terminated(ends_meanwhile.wait_phase(*TERMINAL))["exitCode"] == 5
    goes_on.wait_gone()
    assert "told" in goes_on.log()


def test_after_a_loss_of_power_the_node_is_not_ready_and_its_pods_are_lost(
    control_plane: ControlPlane, namespace: str
) -> None:
    with running_nodes(control_plane, f"n{secrets.token_hex(3)}") as [node]:
        pod = Pod(control_plane, namespace, node, "sleep 1000")
        pod.wait_phase("Running")
        node.power_off()
        wait_until(lambda: not node.is_ready(), "the node is not ready", every=0.2)
        assert pod.wait_phase("Running")  # nobody knows better yet
        node.start()
        ended = terminated(pod.wait_phase(*TERMINAL))
        assert (ended["reason"], ended["exitCode"]) == ("ContainerStatusUnknown", 137)


def test_pods_are_placed_by_the_cluster_s_scheduler_on_a_labelled_node_with_devices(
    control_plane: ControlPlane, run: Any, node: TestNode
) -> None:
    pod = run(
        "true",
        nodeName=None,
        nodeSelector={"kubernetes.io/hostname": node.name},
        container={"resources": {"limits": {"nvidia.com/gpu": "2"}}},
    )
    assert pod.wait_phase(*TERMINAL)["phase"] == "Succeeded"
