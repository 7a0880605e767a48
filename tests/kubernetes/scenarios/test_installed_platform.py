"""What the charts say is started, over verified TLS, on a broker and a database that grant each
service its own rights only. A job trains through it, in a pod of the cluster, while pods of
services are deleted."""

from collections.abc import Iterator

import pytest

from drivetrain_schemas.topics import SERVICES
from tests import s3_server
from tests.kubernetes.charts import Helm
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.infrastructure import Infrastructure, running_infrastructure
from tests.kubernetes.installed_platform import InstalledPlatform
from tests.kubernetes.nodes import NodeKind, running_nodes
from tests.training_job import MAX_STEPS, TrainingJob
from tests.waiting import wait_until

REPLICAS = {"gateway": 2, "metrics": 2, "hpo": 2, "cost": 1}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def infrastructure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Infrastructure]:
    with running_infrastructure(tmp_path_factory.mktemp("infrastructure")) as running:
        yield running


@pytest.fixture
def platform(
    helm: Helm,
    control_plane: ControlPlane,
    namespace: str,
    infrastructure: Infrastructure,
    s3: s3_server.RunningS3,
) -> Iterator[InstalledPlatform]:
    kind = NodeKind(cpu="12", labels={"test": namespace})
    with running_nodes(control_plane, f"n-{namespace}", kind=kind) as nodes:
        installed = InstalledPlatform(helm, control_plane, namespace, infrastructure, s3, nodes)
        installed.make_secrets()
        installed.install(REPLICAS)
        try:
            yield installed
        finally:
            installed.uninstall()


def test_a_job_trains_on_what_the_charts_start(platform: InstalledPlatform) -> None:
    platform.wait_done("setup")
    for service in SERVICES:
        platform.wait_ready(service, REPLICAS.get(service, 1))
    # Started at once on an empty database: one migrates, the others wait for it.
    logs = "".join(platform.log(pod) for service in REPLICAS for pod in platform.pods(service))
    applied = '"migration": "0001_baseline.sql", "event": "migration applied"'
    assert logs.count(applied) == 2 * len(REPLICAS)  # the runtime's and the service's own

    job = TrainingJob.submit(platform, "by-charts", resources={"devices": 1})
    wait_until(lambda: job.events("checkpoint.committed"), "a checkpoint", seconds=120)
    for service in ("scheduler", "gateway"):
        platform.delete(platform.pods(service)[0])
    assert job.wait_final()["state"] == "succeeded"
    assert len(job.events("run.started")) == 1  # the next scheduler has adopted its pod

    # Each of these comes from another service, by its Service, its token and its own rights.
    lines = platform.get(f"/v1/jobs/{job.job_id}/logs", tail=50)["lines"]
    assert any("step" in each["line"] for each in lines)
    assert platform.get(f"/v1/jobs/{job.job_id}/cost")["charged_micro_usd"] > 0
    committed = [item["step"] for item in job.events("checkpoint.committed")]
    assert committed[-1] == MAX_STEPS
