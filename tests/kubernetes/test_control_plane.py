"""The test's own Kubernetes is a real one: rights hold, parts can be killed, data stays."""

import pytest
from kubernetes_asyncio.client import ApiException, CoreV1Api, V1ConfigMap, V1ObjectMeta

from tests.kubernetes.control_plane import KWOK_ANNOTATION, ControlPlane
from tests.waiting import wait_until


def config_map(name: str) -> V1ConfigMap:
    return V1ConfigMap(metadata=V1ObjectMeta(name=name), data={"a": "1"})


async def test_a_service_account_may_do_what_it_was_granted_and_no_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    control_plane.post(f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    control_plane.post(
        f"{roles}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
            "roleRef": {
                "kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io",
            },
        },
    )  # fmt: skip
    async with control_plane.client() as client:
        await CoreV1Api(client).create_namespaced_config_map(namespace, config_map("mine"))

    kubeconfig = control_plane.service_account_kubeconfig(namespace, "default")
    async with control_plane.client(kubeconfig) as client:
        read = await CoreV1Api(client).read_namespaced_config_map("mine", namespace)
        with pytest.raises(ApiException) as refused:
            await CoreV1Api(client).create_namespaced_config_map(namespace, config_map("other"))
    assert read.data == {"a": "1"}
    assert refused.value.status == 403


async def test_a_user_without_rights_is_refused(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with control_plane.client(control_plane.user_kubeconfig("nobody")) as client:
        with pytest.raises(ApiException) as refused:
            await CoreV1Api(client).list_namespaced_pod(namespace)
    assert refused.value.status == 403


async def test_objects_survive_a_kill_of_etcd_and_of_the_api_server(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with control_plane.client() as client:
        await CoreV1Api(client).create_namespaced_config_map(namespace, config_map("kept"))
    for part in (control_plane.etcd, control_plane.apiserver):
        part.kill()
        part.start()
    async with control_plane.client() as client:
        kept = await CoreV1Api(client).read_namespaced_config_map("kept", namespace)
    assert kept.data == {"a": "1"}


def test_kwok_makes_nodes_ready(control_plane: ControlPlane) -> None:
    control_plane.start_kwok()
    control_plane.post(
        "/api/v1/nodes", {"metadata": {"name": "fake-1", "annotations": {KWOK_ANNOTATION: "fake"}}}
    )

    def is_ready() -> bool:
        conditions = (
            control_plane.get("/api/v1/nodes/fake-1").json()["status"].get("conditions", [])
        )
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    wait_until(is_ready, "the node is ready")
    control_plane.http.delete("/api/v1/nodes/fake-1").raise_for_status()
