"""Every object that a chart can make, against the closed schemas of several versions of Kubernetes:
those of the API server that runs here, and of the last three minor versions."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.package import ORDER
from drivetrain_schemas.topics import SERVICES
from tests.kubernetes import tools
from tests.kubernetes.charts import Helm
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.openapi import LOCATION, write_schemas

# Kinds of operators, whose definitions are not in a bare cluster.
OF_OPERATORS = {"ScaledObject", "TriggerAuthentication", "PodMonitor", "PrometheusRule"}
KINDS = (
    *("ConfigMap", "Service", "ServiceAccount", "Deployment", "StatefulSet", "Job"),
    *("PodDisruptionBudget", "NetworkPolicy", "Ingress", "HorizontalPodAutoscaler"),
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
)
VERSIONS = (tools.KUBERNETES_VERSION, *tools.OBJECTS)


@pytest.fixture(scope="module", params=VERSIONS)
def schemas(
    request: pytest.FixtureRequest, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A version, and the folder with the schemas of its objects."""
    version: str = request.param
    if version == tools.KUBERNETES_VERSION:
        plane: ControlPlane = request.getfixturevalue("control_plane")
        openapi = plane.get("/openapi/v2").json()
    elif tools.openapi_file(version).is_file():
        openapi = json.loads(tools.openapi_file(version).read_text())
    else:
        pytest.skip(tools.MISSING)
    folder = tmp_path_factory.mktemp(version)
    write_schemas(openapi, KINDS, folder)
    return version, folder


def conform(helm: Helm, folder: Path, objects: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(helm.tools / "kubeconform", "-strict", "-summary"),
            *("-skip", ",".join(OF_OPERATORS), "-schema-location", f"{folder}/{LOCATION}"),
        ],
        check=False,
        input=objects,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("chart", ORDER)
def test_every_object_is_one_of_this_version(
    helm: Helm, schemas: tuple[str, Path], chart: str
) -> None:
    version, folder = schemas
    values = {name: _with_everything(name) for name in SERVICES}
    given = values if chart == "drivetrain" else values.get(chart, {})
    done = conform(helm, folder, helm.render_text(chart, given, version))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Valid: 0" not in done.stdout


def test_an_unknown_field_is_refused(helm: Helm, schemas: tuple[str, Path]) -> None:
    version, folder = schemas
    rendered = helm.render_text("cost", {}, version)
    misspelt = rendered.replace("readOnlyRootFilesystem:", "readonlyRootFilesystem:")
    assert misspelt != rendered
    done = conform(helm, folder, misspelt)
    assert done.returncode != 0
    assert "readonlyRootFilesystem" in done.stdout


def _with_everything(chart: str) -> dict[str, Any]:
    """Values that make every object and field of this chart."""
    values: dict[str, Any] = {
        "kafka": {"securityProtocol": "SASL_SSL", "caSecret": {"name": "kafka-ca"}},
        "postgres": {"caSecret": {"name": "postgres-ca"}},
        "networkPolicy": {
            "monitoring": {"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]},
            "kafka": {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        },
        "podMonitor": {"enabled": True},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "priorityClassName": "high",
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "x", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
        "serviceAccount": {"annotations": {"role": "x"}},
        "runAsUser": 1000650000,
        "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": ["registry"]},
    }
    if chart in ("scheduler", "checkpoints", "gateway"):
        values["objectStore"] = {"caSecret": {"name": "s3"}, "credentialsSecret": {"name": "key"}}
    if chart == "gateway":
        values["ingress"] = {"enabled": True, "host": "a.example.com", "tlsSecret": "tls"}
    if chart in ("hpo", "metrics", "cost", "gateway"):
        values["autoscaling"] = {"enabled": True, "by": "cpu"}
    if chart == "cost":
        price = {"id": "a", "device_type": "b", "valid_from": "2026-01-01T00:00:00Z"}
        values["prices"] = [{**price, "micro_usd_per_slot_hour": 2500000}]
    if chart == "scheduler":
        values["jobs"] = {
            "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}
        }
    return values
