"""A real Kubernetes control plane on loopback: etcd, API server, controller-manager, scheduler.

Nodes come from `kubelet.py` (pods really run) or kwok (pods only seem to). Access is by certificate
or service account, with RBAC.
"""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.config import new_client_from_config

from services.standalone.ports import free_port
from tests.kubernetes.access import (
    ADMINISTRATORS,
    Authority,
    certificate_user,
    write_kubeconfig,
)
from tests.kubernetes.part import Part
from tests.kubernetes.tools import STAGES
from tests.waiting import wait_until

# A node is NotReady when its kubelet was silent for this long (50 s in a real cluster), so that
# tests of lost nodes need not wait a minute. Kubelets here speak every 2 s.
NODE_GRACE_SECONDS = 8
KWOK_ANNOTATION = "kwok.x-k8s.io/node"


class ControlPlane:
    """Its parts are `etcd`, `apiserver`, `controllers`, `scheduler`, and `kwok` once asked for."""

    def __init__(self, tools: Path, directory: Path) -> None:
        self._tools = tools
        self.directory = directory
        self.authority = Authority(directory)
        self._ports: list[int] = []
        self.port = self._port()
        self.url = f"https://127.0.0.1:{self.port}"
        certificate, key = self.authority.user_certificate(directory, "admin", ADMINISTRATORS)
        self._admin_user = certificate_user(certificate, key)
        self.admin_kubeconfig = self._kubeconfig("admin", self._admin_user)
        tls = ssl.create_default_context(cafile=str(self.authority.ca_file))
        tls.load_cert_chain(certificate, key)
        self.http = httpx.Client(base_url=self.url, verify=tls, trust_env=False, timeout=30.0)
        self.etcd = self._etcd()
        self.apiserver = self._apiserver()
        self.controllers = self._controllers()
        self.scheduler = self._scheduler()
        self.kwok: Part | None = None

    def start(self) -> None:
        self.etcd.launch()
        self.apiserver.launch()
        self.etcd.wait_ready()
        self.apiserver.wait_ready()
        self.controllers.launch()
        self.scheduler.launch()
        self.controllers.wait_ready()
        self.scheduler.wait_ready()
        wait_until(
            lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default").is_success,
            "the namespace default has its service account",
            every=0.05,
        )

    def stop(self) -> None:
        self.http.close()
        for part in (self.kwok, self.scheduler, self.controllers, self.apiserver, self.etcd):
            if part is not None:
                part.kill()  # nothing of it is needed again, and an orderly stop takes 5 s

    def restart_clients(self) -> None:
        """After an outage: Kubernetes' own parts wait up to a minute before they ask again."""
        for part in (self.controllers, self.scheduler):
            part.kill()
            part.start()

    def start_kwok(self) -> None:
        """Nodes with the annotation `KWOK_ANNOTATION: fake` are ready, and their pods seem to run.

        Such nodes are to be deleted by the test that made them: pods of others could land there.
        """
        if self.kwok is not None:
            return
        port = self._port()
        stages = sorted((self._tools / STAGES).glob("*/*.yaml"))
        command = [
            f"--kubeconfig={self.admin_kubeconfig}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={KWOK_ANNOTATION}=fake",
            "--cidr=10.244.0.0/16",
            "--node-ip=127.0.0.1",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{port}",
            *(f"--config={file}" for file in stages),
        ]
        url = f"http://127.0.0.1:{port}/healthz"
        self.kwok = self._part("kwok", command, url)
        self.kwok.start()

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Create something as the administrator; fails the test if refused."""
        answer = self.http.post(path, json=content)
        assert answer.is_success, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def create_namespace(self, name: str) -> str:
        """With its default service account, which pods need."""
        self.post("/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: self.get(account).is_success, f"{name} is ready", every=0.05)
        return name

    def user_kubeconfig(self, user: str, group: str = "", namespace: str = "default") -> Path:
        """For a user who may do what RBAC grants to that name and group."""
        certificate, key = self.authority.user_certificate(self.directory, user, group)
        return self._kubeconfig(user, certificate_user(certificate, key), namespace)

    def service_account_token(self, namespace: str, name: str, *, seconds: int = 3600) -> str:
        """By the API server's TokenRequest, as for a pod that runs as this account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.post(path, {"spec": {"expirationSeconds": seconds}})
        return str(answer["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        token = self.service_account_token(namespace, name)
        return self._kubeconfig(f"{namespace}.{name}", {"token": token}, namespace)

    def kubeconfig_through(self, port: int, name: str = "admin-by-proxy") -> Path:
        """The administrator's, but by way of a proxy on this port of loopback."""
        path = self.directory / f"{name}.kubeconfig"
        server = f"https://127.0.0.1:{port}"
        return write_kubeconfig(path, server, self.authority.ca_pem, self._admin_user)

    @asynccontextmanager
    async def client(self, kubeconfig: Path | None = None) -> AsyncIterator[ApiClient]:
        """The administrator's if no kubeconfig is named."""
        async with await new_client_from_config(str(kubeconfig or self.admin_kubeconfig)) as client:
            yield client

    def _kubeconfig(self, name: str, user: dict[str, Any], namespace: str = "default") -> Path:
        path = self.directory / f"{name.replace(':', '_')}.kubeconfig"
        return write_kubeconfig(path, self.url, self.authority.ca_pem, user, namespace)

    def _port(self) -> int:
        self._ports.append(free_port(self._ports))
        return self._ports[-1]

    def _part(self, name: str, arguments: list[str], url: str, *, tls: bool = False) -> Part:
        def is_ready() -> bool:
            try:
                # The certificate of a side process is its own; only its answer counts.
                return httpx.get(url, verify=not tls, trust_env=False, timeout=5).is_success
            except httpx.HTTPError:
                return False

        log = self.directory / f"{name}.log"
        return Part(name, [str(self._tools / name), *arguments], log, is_ready)

    def _etcd(self) -> Part:
        self._etcd_url = f"http://127.0.0.1:{self._port()}"
        peer = f"http://127.0.0.1:{self._port()}"
        command = [
            "--name=t", f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}", f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=t={peer}", "--unsafe-no-fsync", "--log-level=warn",
        ]  # fmt: skip
        return self._part("etcd", command, f"{self._etcd_url}/health")

    def _apiserver(self) -> Part:
        authority = self.authority
        command = [
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}", f"--etcd-servers={self._etcd_url}",
            f"--tls-cert-file={authority.server_certificate}",
            f"--tls-private-key-file={authority.server_key}",
            f"--client-ca-file={authority.ca_file}", f"--cert-dir={self.directory}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={authority.service_account_key}",
            f"--service-account-signing-key-file={authority.service_account_key}",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none", "--allow-privileged=true",
        ]  # fmt: skip
        part = self._part("kube-apiserver", command, "")
        part.is_ready = self._is_served
        return part

    def _is_served(self) -> bool:
        try:
            return self.get("/readyz").is_success
        except httpx.HTTPError:
            return False

    def _controllers(self) -> Part:
        port = self._port()
        command = [
            f"--kubeconfig={self.admin_kubeconfig}", "--bind-address=127.0.0.1",
            f"--secure-port={port}", f"--cert-dir={self.directory}", "--leader-elect=false",
            f"--service-account-private-key-file={self.authority.service_account_key}",
            f"--root-ca-file={self.authority.ca_file}",
            "--use-service-account-credentials=false", "--controllers=*,-nodeipam",
            "--node-monitor-period=1s", f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        ]  # fmt: skip
        url = f"https://127.0.0.1:{port}/healthz"
        return self._part("kube-controller-manager", command, url, tls=True)

    def _scheduler(self) -> Part:
        port = self._port()
        command = [
            f"--kubeconfig={self.admin_kubeconfig}", "--bind-address=127.0.0.1",
            f"--secure-port={port}", f"--cert-dir={self.directory}", "--leader-elect=false",
        ]  # fmt: skip
        url = f"https://127.0.0.1:{port}/healthz"
        return self._part("kube-scheduler", command, url, tls=True)


@contextmanager
def running_control_plane(tools: Path, directory: Path) -> Iterator[ControlPlane]:
    """Everything that it started has ended when the block is left."""
    control_plane = ControlPlane(tools, directory)
    try:
        control_plane.start()
        yield control_plane
    finally:
        control_plane.stop()
