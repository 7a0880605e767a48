"""A Kubernetes launcher as the scheduler has it: a service account with the rights of its chart."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_kube_config

from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import KafkaAccess, PodSpec
from services.runtime.directory_store import DirectoryStore
from services.runtime.kafka_access import KafkaAccess as Broker
from services.runtime.object_store import ObjectStore
from services.runtime.stores import initialise, open_object_store
from services.runtime.topics import create_topics
from services.scheduler.launchers.base import Launcher, Observation, PodRef
from services.scheduler.launchers.kubernetes.api import Api
from services.scheduler.launchers.kubernetes.cluster import NodeRules, PodRules
from services.scheduler.launchers.kubernetes.ends import Ends
from services.scheduler.launchers.kubernetes.launcher import KubernetesLauncher
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from services.scheduler.launchers.kubernetes.others import OtherPods
from tests import s3_server
from tests.kubernetes.control_plane import KWOK_ANNOTATION, ControlPlane

ACCOUNT = "scheduler"
STORE_URL = f"s3://{s3_server.BUCKET}/store"
STORE_SECRET = "store"
_PREFIX = "kubernetes."
# All that the scheduler may do in the namespace of its pods, and in the whole cluster.
RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["secrets", "services", "events"], "verbs": ["create"]},
]
NODE_RULES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
CLUSTER_RULES = [
    *NODE_RULES,
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
]


def scheduler_kubeconfig(
    control_plane: ControlPlane,
    namespace: str,
    cluster_rules: Sequence[Mapping[str, Any]] = CLUSTER_RULES,
) -> Path:
    """Of a service account with exactly these rights."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    within = f"{rbac}/namespaces/{namespace}"
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    control_plane.post(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": ACCOUNT}}
    )
    control_plane.post(f"{within}/roles", {"metadata": {"name": ACCOUNT}, "rules": RULES})
    group = "rbac.authorization.k8s.io"
    reference = {"kind": "Role", "name": ACCOUNT, "apiGroup": group}
    binding = {"metadata": {"name": ACCOUNT}, "subjects": subjects, "roleRef": reference}
    control_plane.post(f"{within}/rolebindings", binding)
    name = f"{namespace}-{ACCOUNT}"
    control_plane.post(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": cluster_rules})
    reference = {"kind": "ClusterRole", "name": name, "apiGroup": group}
    binding = {"metadata": {"name": name}, "subjects": subjects, "roleRef": reference}
    control_plane.post(f"{rbac}/clusterrolebindings", binding)
    return control_plane.service_account_kubeconfig(namespace, ACCOUNT)


@dataclass(frozen=True, slots=True)
class Outside:
    """What pods reach: a Kafka with its topics, and an object store."""

    kafka: KafkaAccess
    store: ObjectStore
    store_endpoint: str

    def given(self, spec: PodSpec) -> PodSpec:
        return spec.model_copy(
            update={
                "kafka": self.kafka,
                "object_store_url": STORE_URL,
                "object_store_endpoint_url": self.store_endpoint,
            }
        )


@contextlib.asynccontextmanager
async def outside(
    control_plane: ControlPlane, namespace: str, broker: Broker, s3: s3_server.RunningS3
) -> AsyncIterator[Outside]:
    """Made ready, with a Secret that lets the pods of the namespace into the store."""
    secret = {"metadata": {"name": STORE_SECRET}, "stringData": dict(s3_server.ENVIRONMENT)}
    control_plane.post(f"/api/v1/namespaces/{namespace}/secrets", secret)
    await initialise(STORE_URL, s3.endpoint_url)
    await create_topics(broker, _PREFIX)
    kafka = KafkaAccess(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=_PREFIX,
        username=broker.username,
        password=broker.password,
    )
    store = open_object_store(STORE_URL, s3.endpoint_url)
    try:
        yield Outside(kafka, store, s3.endpoint_url)
    finally:
        await store.close()


async def api_of(kubeconfig: Path) -> Api:
    configuration = Configuration()
    await load_kube_config(str(kubeconfig), client_configuration=configuration)
    return Api(configuration)


def pod_spec(name: str, node_id: str, **changes: Any) -> PodSpec:
    job_id = job_id_for("default", name)
    index = changes.get("pod_index", 0)
    job = JobSpec.model_validate({"name": name, "command": "true"})
    given = {
        "pod_id": pod_id_for(job_id, 1, index),
        "tenant_id": "default",
        "job_id": job_id,
        "run_id": run_id_for(job_id, 1),
        "attempt": 1,
        "fence": 7,
        "node_id": node_id,
        "pod_index": index,
        "num_pods": 1,
        "first_rank": index,
        "num_ranks": 1,
        "world_size": 1,
        "device_type": "cpu",
        "job": job,
        "kafka": KafkaAccess(bootstrap_servers="127.0.0.1:1", password="a secret"),
        "object_store_url": "file:///tmp/none",
        "master_port": 20_000,
    }
    return PodSpec.model_validate({**given, **changes})


def ref(spec: PodSpec) -> PodRef:
    return PodRef(spec.job_id, spec.attempt, spec.pod_id)


async def observed(launcher: Launcher, spec: PodSpec) -> Observation:
    return (await launcher.observe([ref(spec)]))[spec.pod_id]


class Cluster:
    """A launcher on its own namespace, as the test sees both."""

    def __init__(
        self, control_plane: ControlPlane, namespace: str, kubeconfig: Path, store: Path
    ) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.store = DirectoryStore(store)
        self._kubeconfig = kubeconfig
        self._apis: list[Api] = []

    async def launcher(
        self, ends: ObjectStore | None = None, node_selector: str = "", **rules: Any
    ) -> tuple[KubernetesLauncher, KubernetesNodes]:
        """One without any state yet, as after a start of the scheduler."""
        api = await api_of(self._kubeconfig)
        self._apis.append(api)
        others = OtherPods(api, PodRules.platform)
        nodes = KubernetesNodes(api, NodeRules(), node_selector, others)
        given = {"image": "drivetrain/training", "namespace": self.namespace, **rules}
        launcher = KubernetesLauncher(api, PodRules(**given), Ends(ends or self.store), nodes)
        return launcher, nodes

    async def close(self) -> None:
        for api in self._apis:
            await api.close()
        await self.store.close()
        nodes = f"/api/v1/nodes?labelSelector=test={self.namespace}"
        for node in self.control_plane.get(nodes).json()["items"]:
            self.control_plane.http.delete(f"/api/v1/nodes/{node['metadata']['name']}")

    def kwok_node(self, name: str, cpu: str = "8", **labels: str) -> str:
        """A node of the namespace, whose pods seem to run."""
        self.control_plane.start_kwok()
        capacity = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        node = {
            "metadata": {
                "name": f"{name}-{self.namespace}",
                "annotations": {KWOK_ANNOTATION: "fake"},
                "labels": {"test": self.namespace, **labels},
            },
            "status": {"allocatable": capacity, "capacity": capacity},
        }
        self.control_plane.post("/api/v1/nodes", node)
        return f"{name}-{self.namespace}"

    def pod(self, spec: PodSpec) -> dict[str, Any] | None:
        name = spec.pod_id.replace("_", "-")
        answer = self.control_plane.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return answer.json() if answer.is_success else None

    def names(self, resource: str) -> list[str]:
        answer = self.control_plane.get(f"/api/v1/namespaces/{self.namespace}/{resource}")
        return [item["metadata"]["name"] for item in answer.json()["items"]]

    def set_status(self, spec: PodSpec, status: dict[str, Any]) -> None:
        """As a kubelet would."""
        name = spec.pod_id.replace("_", "-")
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self.control_plane.http.patch(path, json={"status": status}, headers=headers)
        assert answer.is_success, answer.text


@contextlib.asynccontextmanager
async def running(*calls: Any) -> AsyncIterator[None]:
    """These coroutines, until the block is left."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def terminated(code: int, message: str = "", reason: str = "") -> dict[str, Any]:
    """The status of a pod whose container has ended."""
    state = {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "message": message,
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z",
    }
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [
            {
                "name": "pod", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
                "state": {"terminated": state},
            }
        ],
    }  # fmt: skip
