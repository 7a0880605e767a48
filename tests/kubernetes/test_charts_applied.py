"""The charts without Helm's lifecycle, as Argo CD or `helm template` and `kubectl apply` use them:
rendered only, and applied by the real API server's server-side apply."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kubernetes.charts import (
    KUBERNETES,
    NEEDED,
    RELEASE,
    Helm,
    environment,
    of_kind,
    parsed,
    pod_spec,
)
from tests.kubernetes.control_plane import ControlPlane
from tests.waiting import wait_until

MANAGER = "gitops"
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding")
PLURALS = {"NetworkPolicy": "networkpolicies"}


class Repository:
    """What is applied into a namespace. It knows no releases and removes nothing."""

    def __init__(self, helm: Helm, plane: ControlPlane, namespace: str) -> None:
        self._helm = helm
        self._plane = plane
        self._namespace = namespace
        self._applied: set[str] = set()

    def render(self, package: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
        text = self._helm.run(
            *("template", RELEASE, package, "--namespace", self._namespace),
            *("--kube-version", KUBERNETES, "--values", self._helm.values_file(values)),
        )
        return parsed(text)

    def apply(self, objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The objects as the API server has them now, by path."""
        return {self.path(each): self._apply(each) for each in objects}

    def get(self, it: dict[str, Any]) -> httpx.Response:
        return self._plane.get(self.path(it))

    def end(self, job: dict[str, Any]) -> None:
        """Its pod ends, as a kubelet says it."""
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        query = f"?labelSelector=batch.kubernetes.io/job-name={job['metadata']['name']}"
        (pod,) = wait_until(lambda: self._plane.get(pods + query).json()["items"], "it has a pod")
        answer = self._plane.http.patch(
            f"{pods}/{pod['metadata']['name']}/status",
            content=json.dumps({"status": {"phase": "Succeeded"}}),
            headers={"content-type": "application/merge-patch+json"},
        )
        assert answer.is_success, answer.text

    def remove(self) -> None:
        for path in self._applied:
            self._plane.http.delete(path, params={"propagationPolicy": "Background"})

    def path(self, it: dict[str, Any]) -> str:
        version, kind = it["apiVersion"], it["kind"]
        root = "/apis" if "/" in version else "/api"
        place = "" if kind in CLUSTER_WIDE else f"/namespaces/{it['metadata']['namespace']}"
        plural = PLURALS.get(kind, f"{kind.lower()}s")
        return f"{root}/{version}{place}/{plural}/{it['metadata']['name']}"

    def _apply(self, it: dict[str, Any]) -> dict[str, Any]:
        answer = self._plane.http.patch(
            self.path(it),
            params={"fieldManager": MANAGER},
            content=json.dumps(it),
            headers={"content-type": "application/apply-patch+yaml"},
        )
        assert answer.is_success, f"{self.path(it)}: {answer.text}"
        self._applied.add(self.path(it))
        applied: dict[str, Any] = answer.json()
        return applied


@pytest.fixture
def repository(helm: Helm, control_plane: ControlPlane, namespace: str) -> Iterator[Repository]:
    made = Repository(helm, control_plane, namespace)
    yield made
    made.remove()


def test_the_charts_are_applied_twice_and_upgraded(
    helm: Helm, earlier: dict[str, Path], repository: Repository
) -> None:
    needed = dict(NEEDED["drivetrain"])
    first = repository.apply(repository.render(earlier["drivetrain"], needed))
    again = repository.apply(repository.render(earlier["drivetrain"], needed))
    assert _specs(again) == _specs(first)

    # Another version of the charts alone makes no Job and restarts nothing.
    charts_alone = repository.apply(repository.render(helm.packages["drivetrain"], needed))
    assert _specs(charts_alone) == _specs(first)

    image = {"image": {"tag": "next"}, "kafka": {"bootstrapServers": "other:9093"}}
    values = {**needed, "global": {**needed["global"], **image}}
    objects = repository.render(helm.packages["drivetrain"], values)
    upgraded = repository.apply(objects)
    for each in of_kind(list(upgraded.values()), "Deployment", "StatefulSet", "Job"):
        container = pod_spec(each)["containers"][0]
        assert container["image"].endswith(":next")
        given = environment(container).get("DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS", "other:9093")
        assert given == "other:9093"
    jobs = {path for path in upgraded if "/jobs/" in path}
    assert len(jobs) == 2
    assert not jobs & set(first)
    assert set(first) - set(upgraded) == {path for path in first if "/jobs/" in path}


def test_a_job_that_has_ended_is_removed_and_can_be_applied_again(
    helm: Helm, repository: Repository
) -> None:
    values = {**NEEDED["setup"], "ttlSecondsAfterFinished": 1, "topics": {"create": False}}
    objects = repository.render(helm.packages["setup"], values)
    (job,) = of_kind(objects, "Job")
    for _ in range(2):
        repository.apply(objects)
        repository.end(job)
        wait_until(lambda: repository.get(job).status_code == 404, "the job is removed")


@pytest.mark.parametrize("chart", ["setup", "drivetrain"])
def test_jobs_stay_where_no_time_is_given(helm: Helm, chart: str) -> None:
    """For what reports a missing object as a difference, as Argo CD does."""
    stay = {"ttlSecondsAfterFinished": None}
    values = {"setup": stay} if chart == "drivetrain" else stay
    jobs = of_kind(helm.render(chart, values), "Job")
    assert [each["spec"].get("ttlSecondsAfterFinished") for each in jobs] == [None, None]


def test_the_name_of_a_job_fits_a_label(helm: Helm) -> None:
    for chart, release in (("drivetrain", "a" * 53), ("setup", "setup-" + "a" * 47)):
        text = helm.run(
            *("template", release, helm.packages[chart]),
            *("--kube-version", KUBERNETES, "--values", helm.values_file(NEEDED[chart])),
        )
        jobs = of_kind(parsed(text), "Job")
        names = [each["metadata"]["name"] for each in jobs]
        assert len(set(names)) == 2
        assert all(len(name) <= 63 for name in names)


def _specs(objects: dict[str, dict[str, Any]]) -> dict[str, tuple[str, Any]]:
    """Which objects they are, and what they say."""
    return {path: (it["metadata"]["uid"], it.get("spec")) for path, it in objects.items()}
