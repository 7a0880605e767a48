"""The platform as its charts say, installed by helm into the test's Kubernetes.

Its pods really run. Kafka and Postgres, over verified TLS and with the rights of each service, and
the object store are this machine's.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from drivetrain_schemas.access import POD
from drivetrain_schemas.topics import SERVICES
from tests import s3_server
from tests.kubernetes.charts import Helm
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.infrastructure import ADMINISTRATOR, Infrastructure
from tests.kubernetes.nodes import TestNode
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
RELEASE = "drivetrain"
API_TOKEN = "a-token-of-the-api-of-tests"
# In the image the services are installed; here they are imported from this repository.
AS_INSTALLED = {"extraEnv": [{"name": "PYTHONPATH", "value": str(REPOSITORY)}]}
START_SECONDS = 240.0


class InstalledPlatform:
    """A release of the umbrella chart. `get` and `client` as of `StandalonePlatform`."""

    def __init__(
        self,
        helm: Helm,
        control_plane: ControlPlane,
        namespace: str,
        infrastructure: Infrastructure,
        s3: s3_server.RunningS3,
        nodes: Sequence[TestNode],
    ) -> None:
        self._helm = helm
        self._plane = control_plane
        self._infrastructure = infrastructure
        self._s3 = s3
        self._nodes = nodes
        self.namespace = namespace
        self._jobs = control_plane.create_namespace(f"{namespace}-jobs")

    def make_secrets(self) -> None:
        """Those that deploy/charts/README.md lists, made as an operator makes them."""
        kafka, postgres = self._infrastructure.kafka, self._infrastructure.postgres
        users = {**kafka.passwords, "setup": kafka.passwords[ADMINISTRATOR]}
        made: dict[str, Mapping[str, str]] = {
            **{user: {"password": users[user]} for user in (*SERVICES, "setup", POD)},
            **{f"{name}-postgres": {"dsn": self._infrastructure.dsn(name)} for name in SERVICES},
            "kafka-ca": {"ca.crt": (kafka.directory / "ca.crt").read_text()},
            "postgres-ca": {"ca.crt": (postgres.directory / "ca.crt").read_text()},
            "drivetrain-run-token": {"key": "a-key-that-only-services-have"},
            "drivetrain-read-token": {"token": "a-read-token-of-the-tests"},
            "drivetrain-gateway": {
                "api-token": API_TOKEN,
                "cookie-secret": "a-cookie-secret-of-the-tests",
            },
            "s3": s3_server.ENVIRONMENT,
        }
        for name, content in made.items():
            self._make_secret(self.namespace, name, content)
        self._make_secret(self._jobs, "s3", s3_server.ENVIRONMENT)

    def install(self, replicas: Mapping[str, int]) -> None:
        given = {
            "global": {
                # By default over TLS: with SCRAM, and with a verified certificate of Postgres.
                "kafka": {
                    "bootstrapServers": self._infrastructure.kafka.servers["scram"],
                    "caSecret": {"name": "kafka-ca"},
                },
                "postgres": {"caSecret": {"name": "postgres-ca"}},
                "objectStore": {
                    "url": f"s3://{s3_server.BUCKET}/{self.namespace}",
                    "endpointUrl": self._s3.endpoint_url,
                    "region": "us-east-1",
                    "credentialsSecret": {"name": "s3"},
                },
            },
            **{name: {**AS_INSTALLED, "replicas": replicas.get(name, 1)} for name in SERVICES},
            "setup": {
                **AS_INSTALLED,
                "kafka": {"user": ADMINISTRATOR, "passwordSecret": {"name": "setup"}},
                "topics": {"replicationFactor": 1},
            },
            "scheduler": {
                **AS_INSTALLED,
                "jobs": {
                    "image": "drivetrain/training",
                    "namespace": self._jobs,
                    "environmentSecret": "s3",
                },
                "settings": {"kubernetes_node_selector": f"test={self.namespace}"},
            },
        }
        self._helm.run(
            *("upgrade", "--install", RELEASE, self._helm.packages["drivetrain"]),
            *("--namespace", self.namespace, "--values", self._helm.values_file(given)),
            kubeconfig=self._plane.admin_kubeconfig,
        )

    def uninstall(self) -> None:
        self._helm.run(
            *("uninstall", RELEASE, "--namespace", self.namespace),
            kubeconfig=self._plane.admin_kubeconfig,
        )

    def pods(self, service: str) -> list[dict[str, Any]]:
        selector = f"app.kubernetes.io/name={service}"
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}"
        found: list[dict[str, Any]] = self._plane.get(path).json()["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def wait_ready(self, service: str, replicas: int = 1) -> list[dict[str, Any]]:
        """By the readiness probe of each of its pods."""

        def ready() -> list[dict[str, Any]]:
            self._fail_if_one_ended(service)
            pods = [pod for pod in self.pods(service) if self._answers(pod)]
            return pods if len(pods) == replicas else []

        return wait_until(ready, f"{service} is ready", seconds=START_SECONDS, every=0.5)

    def wait_done(self, service: str) -> None:
        """All of its Jobs are complete."""

        def jobs() -> list[dict[str, Any]]:
            path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
            found: list[dict[str, Any]] = self._plane.get(path).json()["items"]
            return found

        def done() -> bool:
            self._fail_if_one_ended(service)
            return bool(jobs()) and all(job["status"].get("succeeded") for job in jobs())

        wait_until(done, f"{service} is done", seconds=START_SECONDS, every=0.5)

    def _fail_if_one_ended(self, service: str) -> None:
        """A service writes why it ends."""
        for pod in self.pods(service):
            assert pod["status"].get("phase") != "Failed", self.log(pod)[-4000:]

    def log(self, pod: Mapping[str, Any]) -> str:
        return "".join(node.log(pod["metadata"]["name"]) for node in self._nodes)

    def delete(self, pod: Mapping[str, Any]) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        self._plane.http.delete(path).raise_for_status()

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """Of the gateway, by the name of its Service."""
        address = next(pod["status"]["podIP"] for pod in self.pods("gateway") if self._answers(pod))
        with httpx.Client(
            base_url=f"http://{address}:8080",
            headers={
                "Host": f"{RELEASE}-gateway:8080",
                "Authorization": f"Bearer {API_TOKEN}",
            },
            timeout=15.0,
            trust_env=False,
        ) as client:
            yield client

    def get(self, path: str, **parameters: Any) -> Any:
        def answer() -> Any:
            with self.client() as client:
                found = client.get(path, params=parameters)
            return found.json() if found.status_code == 200 else None

        return wait_until(answer, f"GET {path}", seconds=90)

    def _make_secret(self, namespace: str, name: str, content: Mapping[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace}/secrets"
        self._plane.post(path, {"metadata": {"name": name}, "stringData": dict(content)})

    @staticmethod
    def _answers(pod: Mapping[str, Any]) -> bool:
        """As the kubelet probes: the path and the named port of the container's readiness probe."""
        container = pod["spec"]["containers"][0]
        probe = container["readinessProbe"]["httpGet"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        address = pod["status"].get("podIP")
        if not address or pod["metadata"].get("deletionTimestamp"):
            return False
        url = f"http://{address}:{ports[probe['port']]}{probe['path']}"
        try:
            return httpx.get(url, trust_env=False, timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False
