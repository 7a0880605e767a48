"""The contract suite of launchers, on a real API server and pods that really run."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_kube_config

from drivetrain_schemas.pods import PodSpec, StopNotice
from services.runtime.kafka_access import KafkaAccess as Broker
from services.scheduler.launchers.base import Launcher, PodRef
from services.scheduler.launchers.kubernetes.api import Api
from services.scheduler.launchers.kubernetes.cluster import NodeRules, PodRules
from services.scheduler.launchers.kubernetes.ends import Ends
from services.scheduler.launchers.kubernetes.launcher import KubernetesLauncher
from services.scheduler.launchers.kubernetes.names import STOP, pod_name
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from tests import s3_server
from tests.contract.launchers import Rig

# Collected here, with the fixture `rig` of this module.
from tests.contract.test_launcher import *  # noqa: F403
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import STORE_SECRET, Outside, outside, scheduler_kubeconfig
from tests.kubernetes.nodes import NodeKind, TestNode, running_nodes
from tests.waiting import wait_until

_START = "the program was started"


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[TestNode]:
    with running_nodes(control_plane, "contract", kind=NodeKind(cpu="8")) as (found,):
        yield found


class KubernetesRig(Rig):
    def __init__(
        self,
        control_plane: ControlPlane,
        configuration: Configuration,
        namespace: str,
        node: TestNode,
        reached: Outside,
    ) -> None:
        self._control_plane = control_plane
        self._configuration = configuration
        self._namespace = namespace
        self._node = node
        self._reached = reached
        self._launchers: list[KubernetesLauncher] = []
        self._names: set[str] = set()
        self.launcher: Launcher = self.restarted()

    def spec(self, command: Sequence[str], **changes: int) -> PodSpec:
        spec = super().spec(command, **changes)
        self._names.add(pod_name(spec.pod_id))
        place = {"node_id": self._node.name, "rendezvous_file": None}
        return self._reached.given(spec.model_copy(update=place))

    def restarted(self) -> Launcher:
        api = Api(self._configuration)
        rules = PodRules(
            image="any",
            namespace=self._namespace,
            environment_secret=STORE_SECRET,
            run_as_user=None,
            slot_cpu="100m",
        )
        nodes = KubernetesNodes(api, NodeRules())
        launcher = KubernetesLauncher(api, rules, Ends(self._reached.store), nodes)
        self._launchers.append(launcher)
        return launcher

    def counted(self) -> tuple[str, ...]:
        return ("sh", "-c", f"echo {_START} > /proc/1/fd/2; exec sleep 600")

    def num_starts(self) -> int:
        return sum(self._node.log(name).count(_START) for name in self._names)

    def notice(self, pod: PodRef) -> StopNotice | None:
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod_name(pod.pod_id)}"
        text = self._control_plane.get(path).json()["metadata"].get("annotations", {}).get(STOP)
        return None if text is None else StopNotice.model_validate_json(text)

    def refuse(self) -> None:
        quota = {"metadata": {"name": "limits"}, "spec": {"hard": {"limits.memory": "1Ti"}}}
        self._control_plane.post(self._quotas, quota)
        wait_until(self._is_refused, "the quota is in force", every=0.1)

    def mend(self) -> None:
        self._control_plane.http.delete(f"{self._quotas}/limits").raise_for_status()
        wait_until(lambda: not self._is_refused(), "the quota is gone", every=0.1)

    def _is_refused(self) -> bool:
        container = {"name": "a", "image": "a"}
        pod = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
        path = f"/api/v1/namespaces/{self._namespace}/pods?dryRun=All"
        return not self._control_plane.http.post(path, json=pod).is_success

    @property
    def _quotas(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/resourcequotas"

    async def close(self) -> None:
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._control_plane.http.delete(f"{pods}?gracePeriodSeconds=1").raise_for_status()
        for launcher in self._launchers:
            await launcher.close()


@pytest_asyncio.fixture
async def rig(
    control_plane: ControlPlane,
    namespace: str,
    node: TestNode,
    kafka: Broker,
    s3: s3_server.RunningS3,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Rig]:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    kubeconfig: Path = scheduler_kubeconfig(control_plane, namespace)
    configuration = Configuration()
    await load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with outside(control_plane, namespace, kafka, s3) as reached:
        made = KubernetesRig(control_plane, configuration, namespace, node, reached)
        yield made
        await made.close()
