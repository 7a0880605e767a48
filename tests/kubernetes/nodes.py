"""Nodes whose pods really run, as a test sees and strikes them: one `kubelet` process for each."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kubernetes.access import ADMINISTRATORS
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet.containers import Container
from tests.kubernetes.part import Part
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
NODE = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What its nodes have. `devices`: of `nvidia.com/gpu`."""

    cpu: str = "8"
    memory: str = "32Gi"
    devices: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def resources(self) -> dict[str, str]:
        found = {"cpu": self.cpu, "memory": self.memory, "pods": "110"}
        return found | ({"nvidia.com/gpu": str(self.devices)} if self.devices else {})


class TestNode:
    """A node with its kubelet. Its pods end with the test process at the latest."""

    __test__ = False  # no tests in here

    def __init__(self, control_plane: ControlPlane, name: str, kind: NodeKind) -> None:
        self.name = name
        self._control_plane = control_plane
        base = control_plane.directory / "nodes"
        base.mkdir(exist_ok=True)
        self.directory = base / name
        authority = control_plane.authority
        certificate, key = authority.user_certificate(base, f"kubelet-{name}", ADMINISTRATORS)
        # Containers watch this pipe: it closes when this process ends, however it ends.
        self._session, self._held = os.pipe()
        config = {
            "server": control_plane.url,
            "ca": str(authority.ca_file), "certificate": str(certificate), "key": str(key),
            "nodes": [name],
            "directory": str(base),
            "session_fd": self._session,
            "labels": dict(kind.labels),
            "resources": kind.resources(),
            "image_environment": {
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "HOME": "/tmp",
                "LANG": "C.UTF-8",
            },
            "image_paths": [str(REPOSITORY), sys.prefix, sys.base_prefix],
        }  # fmt: skip
        file = base / f"{name}.json"
        file.write_text(json.dumps(config))
        self.kubelet = Part(
            f"kubelet of {name}",
            [sys.executable, "-m", "tests.kubernetes.kubelet", str(file)],
            base / f"{name}.log",
            self.is_ready,
            {"PYTHONPATH": str(REPOSITORY)},
            keeps=(self._session,),
        )

    def start(self) -> None:
        self.kubelet.start()
        wait_until(lambda: not self._taints(), f"{self.name} takes pods", every=0.05)

    def is_ready(self) -> bool:
        """As the API server has it."""
        answer = self._get(f"{NODE}/{self.name}")
        conditions = (answer or {}).get("status", {}).get("conditions", [])
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def power_off(self) -> None:
        """The machine goes: its kubelet and all processes of its pods, without a word."""
        self.kubelet.kill()
        for directory in self.directory.glob("pods/*/containers/*"):
            container = Container(directory, directory / "log")
            wait_until(container.is_lost, "the processes of a pod have gone", every=0.02)

    def remove(self) -> None:
        """Off, and its object deleted: what a cloud does with a machine that is gone."""
        self.power_off()
        self._control_plane.http.delete(f"{NODE}/{self.name}")

    def mark_out_of_service(self) -> None:
        """The operator's word that it is off."""
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "off", "effect": "NoExecute"}
        content = {"spec": {"taints": [*self._taints(), taint]}}
        headers = {"content-type": "application/merge-patch+json"}
        self._control_plane.http.patch(
            f"{NODE}/{self.name}", content=json.dumps(content), headers=headers
        ).raise_for_status()

    def log(self, pod: str, container: str = "*") -> str:
        """What the newest pod of this name wrote."""
        files = sorted(
            self.directory.glob(f"logs/*_{pod}_*_{container}.log"),
            key=lambda file: file.stat().st_mtime,
        )
        return "".join(file.read_text(errors="replace") for file in files)

    def close(self) -> None:
        self.remove()
        os.close(self._held)
        os.close(self._session)

    def _taints(self) -> list[dict[str, Any]]:
        node = self._get(f"{NODE}/{self.name}") or {"spec": {}}
        return list(node["spec"].get("taints", []))

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self._control_plane.get(path)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None


@contextmanager
def running_nodes(
    control_plane: ControlPlane, *names: str, kind: NodeKind | None = None
) -> Iterator[list[TestNode]]:
    """Ready nodes; they and their pods have gone when the block is left."""
    probe = subprocess.run(["unshare", "-Urmpf", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("user namespaces are not allowed: sysctl -w kernel.unprivileged_userns_clone=1")
    nodes: list[TestNode] = []
    try:
        for name in names:
            nodes.append(TestNode(control_plane, name, kind or NodeKind()))
            nodes[-1].kubelet.launch()
        for node in nodes:
            node.kubelet.wait_ready()
            wait_until(lambda n=node: not n._taints(), f"{node.name} takes pods", every=0.05)
        yield nodes
    finally:
        for node in nodes:
            node.close()
