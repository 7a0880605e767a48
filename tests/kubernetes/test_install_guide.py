"""The values of "Install on Kubernetes", rendered; what they refer to is made by its commands."""

import re
from typing import Any

import pytest
import yaml

from drivetrain_schemas.access import ACCESS
from tests.guides import GUIDES, blocks, section
from tests.kubernetes.charts import KUBERNETES, Helm, of_kind, pod_spec

ROOT = GUIDES.parents[1]
GUIDE = "install-kubernetes.md"
# Of Strimzi: the CA of a cluster that is called `kafka`, and a Secret for each user.
BY_STRIMZI = {"kafka-cluster-ca-cert": {"ca.crt"}, **{user: {"password"} for user in ACCESS}}


@pytest.fixture(scope="module")
def rendered(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    (values,) = [
        each for each in blocks(section(GUIDE, "9. Install")) if each.startswith("global:")
    ]
    path = tmp_path_factory.mktemp("guide") / "values.yaml"
    path.write_text(values)
    text = helm.run(
        *("template", "drivetrain", helm.packages["drivetrain"], "--namespace", "drivetrain"),
        *("--kube-version", KUBERNETES, "--values", path),
    )
    return [each for each in yaml.safe_load_all(text) if each]


def _made_secrets(namespace: str) -> dict[str, set[str]]:
    """Name and keys of each Secret that a command of the guide creates there."""
    text = (GUIDES / GUIDE).read_text().replace("\\\n", " ")
    text = text.replace('"$service-postgres"', "SERVICE-postgres")
    made = dict(BY_STRIMZI) if namespace == "drivetrain" else {}
    found = re.findall(rf"--namespace {namespace} create secret generic (\S+) (.*)", text)
    for name, options in found:
        keys = set(re.findall(r"--from-(?:literal|file)=([\w.-]+)", options))
        for each in [name] if "SERVICE" not in name else [f"{user}-postgres" for user in ACCESS]:
            made[each] = keys
    return made


def test_every_secret_of_the_values_is_made_before(rendered: list[dict[str, Any]]) -> None:
    made = _made_secrets("drivetrain")
    wanted: set[tuple[str, str]] = set()
    for workload in of_kind(rendered, "Deployment", "StatefulSet", "Job"):
        spec = pod_spec(workload)
        for volume in spec["volumes"]:
            for source in volume.get("projected", {}).get("sources", []):
                wanted |= {(source["secret"]["name"], i["key"]) for i in source["secret"]["items"]}
        for variable in spec["containers"][0]["env"]:
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                wanted.add((reference["name"], reference["key"]))
    assert len(wanted) > 15
    assert {(name, key) for name, key in wanted if key not in made.get(name, ())} == set()


def test_pods_of_jobs_find_their_environment(rendered: list[dict[str, Any]]) -> None:
    (scheduler,) = [
        each
        for each in of_kind(rendered, "Deployment")
        if each["metadata"]["name"] == "drivetrain-scheduler"
    ]
    settings = {e["name"]: e.get("value") for e in pod_spec(scheduler)["containers"][0]["env"]}
    namespace = settings["DRIVETRAIN_KUBERNETES_NAMESPACE"]
    secret = settings["DRIVETRAIN_KUBERNETES_ENVIRONMENT_SECRET"]
    assert f"kubectl create namespace {namespace}\n" in (GUIDES / GUIDE).read_text()
    assert "AWS_SECRET_ACCESS_KEY" in _made_secrets(str(namespace))[str(secret)]


def test_what_the_commands_name_is_installed(rendered: list[dict[str, Any]]) -> None:
    """`service/drivetrain-gateway`, `kafka/kafka` ..."""
    (job,) = of_kind(rendered, "Job")
    (selector,) = re.findall(r"logs --selector (\S+)\n", section(GUIDE, "9. Install"))
    name, value = selector.split("=")
    assert job["spec"]["template"]["metadata"]["labels"][name] == value
    named = set(re.findall(r"(?:service|kafka)/([\w-]+)", section(GUIDE, "10. Train")))
    assert named == {"drivetrain-gateway"}
    assert named <= {each["metadata"]["name"] for each in of_kind(rendered, "Service")}
    brokers = yaml.safe_load_all((ROOT / "deploy/kafka/cluster.example.yaml").read_text())
    (kafka,) = [each for each in brokers if each["kind"] == "Kafka"]
    text = (GUIDES / GUIDE).read_text()
    name = kafka["metadata"]["name"]
    assert f"wait kafka/{name} " in text
    assert f"bootstrapServers: {name}-kafka-bootstrap.drivetrain.svc:" in text
    for file in ("topics.yaml", "users.yaml"):
        for each in yaml.safe_load_all((ROOT / "deploy/kafka" / file).read_text()):
            assert each["metadata"]["labels"]["strimzi.io/cluster"] == name
