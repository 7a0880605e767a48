"""The platform with its pods in the test's Kubernetes, and a training job on it."""

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import s3_server
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import scheduler_kubeconfig
from tests.kubernetes.nodes import TestNode
from tests.kubernetes.proxy import Proxy
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

ENVIRONMENT_SECRET = "pods-environment"


@dataclass(frozen=True, slots=True)
class KubernetesPlatform:
    """`proxy`: between the scheduler and the API server. `objects`: the object store's files."""

    platform: StandalonePlatform
    control_plane: ControlPlane
    namespace: str
    nodes: Sequence[TestNode]
    proxy: Proxy
    objects: Path

    def pods(self, job: TrainingJob) -> list[dict[str, Any]]:
        """Objects of the API server, in order of their names."""
        selector = f"labelSelector=drivetrain.dev/job={job.job_id}"
        path = f"/api/v1/namespaces/{self.namespace}/pods?{selector}"
        answer = self.control_plane.get(path)
        answer.raise_for_status()
        return sorted(answer.json()["items"], key=lambda pod: str(pod["metadata"]["name"]))

    def check_pods_ended(self, job: TrainingJob) -> None:
        """The objects stay for a while, so that people can read the logs."""

        def ended() -> bool:
            phases = [pod["status"]["phase"] for pod in self.pods(job)]
            return all(phase in ("Succeeded", "Failed") for phase in phases)

        wait_until(ended, "every pod of the job has ended", seconds=30)

    def node_of(self, pod: dict[str, Any]) -> TestNode:
        return next(node for node in self.nodes if node.name == pod["spec"]["nodeName"])

    def submit(self, script: str | None = None, **changes: Any) -> "KubernetesJob":
        request_id = f"job-{secrets.token_hex(4)}"
        job = KubernetesJob.submit(self.platform, request_id, script, **changes)
        return KubernetesJob(self.platform, job.job_id, self.nodes)


class KubernetesJob(TrainingJob):
    """A job whose pods' directories are volumes on the nodes."""

    def __init__(
        self, platform: StandalonePlatform, job_id: str, nodes: Sequence[TestNode] = ()
    ) -> None:
        super().__init__(platform, job_id)
        self._nodes = nodes
        self._step = 0

    def step(self) -> int:
        """The furthest step in the ranks' logs, also of pods that have gone since the last call."""
        for node in self._nodes:
            pattern = f"pods/*/volumes/root/{self.job_id}/*/*/log"
            for log in node.directory.glob(pattern):
                found = re.findall(rb"step (\d+)\n", log.read_bytes()[-4096:])
                self._step = max([self._step, *map(int, found)])
        return self._step


@contextmanager
def running_platform(
    control_plane: ControlPlane,
    namespace: str,
    nodes: Sequence[TestNode],
    s3: s3_server.RunningS3,
    directory: Path,
) -> Iterator[KubernetesPlatform]:
    """Its scheduler has the rights of its chart, and may use only nodes of this namespace."""
    control_plane.post(
        f"/api/v1/namespaces/{namespace}/secrets",
        {"metadata": {"name": ENVIRONMENT_SECRET}, "stringData": dict(s3_server.ENVIRONMENT)},
    )
    kubeconfig = scheduler_kubeconfig(control_plane, namespace)
    proxy = Proxy(control_plane.port)
    through_proxy = directory / "scheduler.kubeconfig"
    direct = f"127.0.0.1:{control_plane.port}"
    through_proxy.write_text(kubeconfig.read_text().replace(direct, f"127.0.0.1:{proxy.port}"))
    variables = {
        "KUBECONFIG": str(through_proxy),
        "DRIVETRAIN_LAUNCHER": "kubernetes",
        "DRIVETRAIN_KUBERNETES_NAMESPACE": namespace,
        "DRIVETRAIN_KUBERNETES_IMAGE": "drivetrain/training",
        "DRIVETRAIN_KUBERNETES_ENVIRONMENT_SECRET": ENVIRONMENT_SECRET,
        "DRIVETRAIN_KUBERNETES_NODE_SELECTOR": f"test={namespace}",
        "DRIVETRAIN_OBJECT_STORE_URL": f"s3://{s3_server.BUCKET}/{namespace}",
        "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL": s3.endpoint_url,
        **s3_server.ENVIRONMENT,
    }
    platform = StandalonePlatform(directory / "home", outside=variables)
    objects = s3.directory / s3_server.BUCKET / namespace
    try:
        platform.start()
        yield KubernetesPlatform(platform, control_plane, namespace, nodes, proxy, objects)
    finally:
        platform.stop()
        proxy.close()
