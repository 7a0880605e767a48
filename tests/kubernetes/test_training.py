"""The first example trains in pods of a real Kubernetes API server, on two nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import s3_server
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import NodeKind, running_nodes
from tests.kubernetes.platform import KubernetesPlatform, running_platform

DIGITS = Path(__file__).parents[2] / "examples" / "01-digits"

pytestmark = pytest.mark.timeout(s3_server.BUILD_SECONDS + 600)


@pytest.fixture
def kubernetes(
    control_plane: ControlPlane, namespace: str, s3: s3_server.RunningS3, tmp_path: Path
) -> Iterator[KubernetesPlatform]:
    kind = NodeKind(cpu="1", labels={"test": namespace})
    names = (f"a-{namespace}", f"b-{namespace}")
    with (
        running_nodes(control_plane, *names, kind=kind) as nodes,
        running_platform(control_plane, namespace, nodes, s3, tmp_path) as platform,
    ):
        yield platform


def test_the_digits_job_trains_in_two_pods(kubernetes: KubernetesPlatform) -> None:
    spec = yaml.safe_load((DIGITS / "job.yaml").read_text())
    spec |= {"max_steps": 150}
    del spec["name"], spec["code"]  # as submitted from here
    job = kubernetes.submit((DIGITS / "train.py").read_text(), **spec)

    assert job.wait_final()["state"] == "succeeded"

    (granted,) = job.events("allocation.granted")
    assert {slot["node_id"] for slot in granted["slots"]} == {it.name for it in kubernetes.nodes}
    committed = [item["step"] for item in job.events("checkpoint.committed")]
    assert committed[-1] == 150
    metrics = job.platform.get(f"/v1/jobs/{job.job_id}/metrics", names="validation_accuracy")
    assert metrics["series"]["validation_accuracy"]["values"][-1] > 0.5
    kubernetes.check_pods_ended(job)
