"""The charts on a real API server: it accepts what they make, also under the strictest Pod Security
Standard; install, upgrade, rollback and removal of each chart alone and of all at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.package import ORDER
from drivetrain_schemas.topics import SERVICES
from tests.kubernetes.charts import NEEDED, Helm, Refused
from tests.kubernetes.control_plane import ControlPlane
from tests.waiting import wait_until

APPS = "/apis/apps/v1/namespaces"


class Release:
    """A release of helm in a namespace."""

    def __init__(self, helm: Helm, plane: ControlPlane, namespace: str, name: str) -> None:
        self._helm = helm
        self._plane = plane
        self.namespace = namespace
        self.name = name

    def put(self, package: Path, values: dict[str, Any]) -> str:
        """Install or upgrade."""
        return self.helm(
            "upgrade", "--install", package, "--values", self._helm.values_file(values)
        )

    def helm(self, verb: str, *arguments: str | Path) -> str:
        options = [each for each in arguments if isinstance(each, str) and each == "--install"]
        rest = [each for each in arguments if each not in options]
        return self._helm.run(
            *(verb, *options, self.name, *rest, "--namespace", self.namespace),
            kubeconfig=self._plane.admin_kubeconfig,
        )

    def objects(self) -> dict[str, dict[str, Any]]:
        """What the release's manifest names, as the API server has it now."""
        plural = {"Deployment": "deployments", "StatefulSet": "statefulsets"}
        found = {}
        for kind, name in plural.items():
            answer = self._plane.get(f"{APPS}/{self.namespace}/{name}").json()
            found |= {f"{kind}/{each['metadata']['name']}": each for each in answer["items"]}
        return found

    def left(self) -> list[str]:
        """All objects of this release, of any kind that the charts make."""
        paths = {
            "/apis/apps/v1": ["deployments", "statefulsets"],
            "/apis/batch/v1": ["jobs"],
            "/api/v1": ["services", "configmaps", "serviceaccounts", "secrets"],
            "/apis/policy/v1": ["poddisruptionbudgets"],
            "/apis/networking.k8s.io/v1": ["networkpolicies", "ingresses"],
            "/apis/rbac.authorization.k8s.io/v1": ["roles", "rolebindings"],
        }
        found = []
        for group, kinds in paths.items():
            for kind in kinds:
                items = self._plane.get(f"{group}/namespaces/{self.namespace}/{kind}").json()[
                    "items"
                ]
                found += [f"{kind}/{each['metadata']['name']}" for each in items]
        for kind in ("clusterroles", "clusterrolebindings"):
            items = self._plane.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}").json()["items"]
            names = [each["metadata"]["name"] for each in items]
            found += [f"{kind}/{each}" for each in names if each.startswith(self.namespace)]
        of_every_namespace = {"configmaps/kube-root-ca.crt", "serviceaccounts/default"}
        return sorted(set(found) - of_every_namespace)


@pytest.fixture
def restricted(control_plane: ControlPlane, namespace: str) -> str:
    """A namespace in which the API server refuses pods with any privilege."""
    answer = control_plane.http.patch(
        f"/api/v1/namespaces/{namespace}",
        content=json.dumps(
            {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        ),
        headers={"content-type": "application/merge-patch+json"},
    )
    assert answer.is_success, answer.text
    return namespace


@pytest.mark.parametrize("chart", ORDER)
def test_a_chart_is_installed_upgraded_rolled_back_and_removed(
    helm: Helm,
    control_plane: ControlPlane,
    restricted: str,
    earlier: dict[str, Path],
    chart: str,
) -> None:
    release = Release(helm, control_plane, restricted, "drivetrain")
    release.put(earlier[chart], _plain(chart, {}))
    before = release.objects()
    assert release.left() != []

    # Another version of the charts alone restarts nothing.
    release.put(helm.packages[chart], _plain(chart, {}))
    unchanged = release.objects()
    assert _templates(unchanged) == _templates(before)

    changed = {"podAnnotations": {"changed": "yes"}}
    release.put(helm.packages[chart], _plain(chart, changed))
    after = release.objects()
    assert all(
        each["spec"]["template"]["metadata"].get("annotations") == {"changed": "yes"}
        for each in after.values()
    )
    assert (_templates(after) != _templates(before)) == bool(before)

    release.helm("rollback", "1")
    assert _templates(release.objects()) == _templates(before)

    release.helm("uninstall", "--wait")
    assert release.left() == []


def test_pods_of_all_services_are_created_under_the_strictest_standard(
    helm: Helm, control_plane: ControlPlane, restricted: str
) -> None:
    release = Release(helm, control_plane, restricted, "drivetrain")
    said = release.put(helm.packages["drivetrain"], {**NEEDED["drivetrain"]})
    assert "drivetrain job submit" in said  # the notes say what to do next
    expected = {f"drivetrain-{name}" for name in (*SERVICES, "setup")}

    def pods() -> list[dict[str, Any]]:
        listed = control_plane.get(f"/api/v1/namespaces/{restricted}/pods").json()
        items: list[dict[str, Any]] = listed["items"]
        return items

    wait_until(
        lambda: {each["spec"]["serviceAccountName"] for each in pods()} == expected,
        "each service has a pod",
    )
    gateways = [
        each for each in pods() if each["metadata"]["name"].startswith("drivetrain-gateway")
    ]
    wait_until(
        lambda: (
            sum(each["metadata"]["name"].startswith("drivetrain-gateway") for each in pods()) == 2
        ),
        "the gateway has two pods",
    )
    gateways = [
        each for each in pods() if each["metadata"]["name"].startswith("drivetrain-gateway")
    ]
    indexes = {each["metadata"]["labels"]["apps.kubernetes.io/pod-index"] for each in gateways}
    assert indexes == {"0", "1"}
    release.helm("uninstall", "--wait")


def test_a_wrong_value_is_refused_before_anything_is_made(
    helm: Helm, control_plane: ControlPlane, namespace: str
) -> None:
    release = Release(helm, control_plane, namespace, "drivetrain")
    with pytest.raises(Refused, match="replica"):
        release.put(helm.packages["hpo"], {**NEEDED["hpo"], "replica": 2})
    assert release.left() == []


def test_a_second_platform_is_refused_in_a_namespace_of_jobs(
    helm: Helm, control_plane: ControlPlane, namespace: str
) -> None:
    """Each scheduler would delete the pods of the other, which no run of its own has."""
    jobs = control_plane.create_namespace(f"{namespace}-jobs")
    others = control_plane.create_namespace(f"{namespace}-second")
    given = {"image": "x:1", "namespace": jobs, "serviceAccount": {"create": False}}
    values = {**NEEDED["scheduler"], "jobs": given}
    first = Release(helm, control_plane, namespace, "first")
    first.put(helm.packages["scheduler"], values)
    second = Release(helm, control_plane, others, "second")
    with pytest.raises(Refused, match="drivetrain-pods"):
        second.put(helm.packages["scheduler"], values)
    assert second.left() == []
    first.helm("uninstall", "--wait")
    second.put(helm.packages["scheduler"], values)
    second.helm("uninstall", "--wait")


def test_the_scheduler_may_do_what_its_role_says_and_no_more(
    helm: Helm, control_plane: ControlPlane, namespace: str
) -> None:
    """Asked of the API server's authorizer, for every account of the platform."""
    jobs = control_plane.create_namespace(f"{namespace}-jobs")
    release = Release(helm, control_plane, namespace, "drivetrain")
    values = {**NEEDED["drivetrain"], "scheduler": {"jobs": {"image": "x:1", "namespace": jobs}}}
    release.put(helm.packages["drivetrain"], values)
    scheduler = "drivetrain-scheduler"
    may = [
        *(
            (jobs, "", "pods", verb)
            for verb in ("get", "list", "watch", "create", "patch", "delete")
        ),
        (jobs, "", "secrets", "create"),
        (jobs, "", "services", "create"),
        (jobs, "", "events", "create"),
        ("", "", "nodes", "list"),
        ("", "", "nodes", "watch"),
        # What pods of others request; `seeOtherPods: false` takes it away.
        ("kube-system", "", "pods", "list"),
        ("kube-system", "", "pods", "watch"),
    ]
    may_not = [
        (namespace, "", "pods", "create"),
        (namespace, "", "secrets", "get"),
        (jobs, "", "secrets", "get"),
        (jobs, "", "secrets", "list"),
        (jobs, "", "pods/exec", "create"),
        ("kube-system", "", "pods", "get"),
        ("kube-system", "", "pods", "delete"),
        ("", "", "nodes", "patch"),
    ]
    ask = control_plane
    assert [each for each in may if not _allowed(ask, namespace, scheduler, *each)] == []
    assert [each for each in may_not if _allowed(ask, namespace, scheduler, *each)] == []
    others = [(namespace, f"drivetrain-{name}") for name in SERVICES if name != "scheduler"]
    for account in [*others, (jobs, "drivetrain-job")]:
        assert [each for each in (*may, *may_not) if _allowed(ask, *account, *each)] == []
    release.helm("uninstall", "--wait")


def _allowed(
    plane: ControlPlane, home: str, account: str, namespace: str, group: str, what: str, verb: str
) -> bool:
    resource, _, subresource = what.partition("/")
    review = {
        "spec": {
            "user": f"system:serviceaccount:{home}:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "namespace": namespace,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "verb": verb,
            },
        }
    }
    answer = plane.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _plain(chart: str, values: dict[str, Any]) -> dict[str, Any]:
    """For all services of the umbrella; without its second replicas, which no node would run."""
    if chart == "drivetrain":
        return _merged(dict(NEEDED[chart]), {name: dict(values) for name in (*SERVICES, "setup")})
    return {**NEEDED[chart], **values}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {key: {**first.get(key, {}), **second.get(key, {})} for key in {**first, **second}}


def _templates(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: each["spec"]["template"] for name, each in objects.items()}
