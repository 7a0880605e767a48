"""What the charts render: lint, their own suites, confinement, rights, flows, stop times."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.documents.settings import CLASSES
from deploy.package import ORDER
from drivetrain_schemas.topics import SERVICES
from services.runtime.settings import load
from services.scheduler.settings import SchedulerSettings
from tests.kubernetes.charts import (
    CHARTS,
    KUBERNETES,
    NEEDED,
    Helm,
    Refused,
    environment,
    of_kind,
    pod_spec,
)
from tests.kubernetes.launching import CLUSTER_RULES, NODE_RULES, RULES

ROOT = CHARTS.parents[1]
WORKLOADS = ("Deployment", "StatefulSet", "Job")
EACH = pytest.mark.parametrize("chart", SERVICES)
EACH_CHART = pytest.mark.parametrize("chart", ORDER)


@EACH_CHART
def test_lint_finds_nothing(helm: Helm, chart: str, tmp_path: Path) -> None:
    shutil.unpack_archive(helm.packages[chart], tmp_path)
    said = helm.run(
        *("lint", "--strict", tmp_path / chart, "--kube-version", KUBERNETES),
        *("--values", helm.values_file(NEEDED[chart])),
    )
    assert "0 chart(s) failed" in said


@EACH_CHART
def test_its_own_suite_passes(helm: Helm, chart: str, tmp_path: Path) -> None:
    shutil.unpack_archive(helm.packages[chart], tmp_path)
    shutil.copytree(CHARTS / chart / "tests", tmp_path / chart / "tests")
    assert list((tmp_path / chart / "tests").glob("*_test.yaml"))
    done = subprocess.run(
        [helm.tools / "untt", tmp_path / chart], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@EACH_CHART
def test_every_pod_is_confined(helm: Helm, chart: str) -> None:
    """The Pod Security Standard `restricted`, and a read-only root."""
    found = of_kind(helm.render(chart), *WORKLOADS)
    assert found
    for workload in found:
        spec = pod_spec(workload)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert set(container["resources"]) == {"requests", "limits"}
            volumes = {each["name"]: each for each in spec["volumes"]}
            writable = [
                each["mountPath"]
                for each in container["volumeMounts"]
                if "emptyDir" in volumes[each["name"]]
            ]
            assert writable == ["/tmp"]


@EACH_CHART
def test_secrets_are_named_and_never_contained(helm: Helm, chart: str) -> None:
    objects = helm.render(chart)
    assert of_kind(objects, "Secret") == []
    for workload in of_kind(objects, *WORKLOADS):
        for container in pod_spec(workload)["containers"]:
            for name, value in environment(container).items():
                if re.search(r"PASSWORD|TOKEN|SECRET|DSN|RUN_TOKEN_KEY", name):
                    is_reference = name.endswith(("_FILE", "_SECRET")) or name.startswith("AWS_")
                    assert is_reference, name
                    assert value == "" or value.startswith("/etc/drivetrain/secrets/")


@EACH
def test_a_file_that_a_setting_names_is_in_the_volume_of_secrets(helm: Helm, chart: str) -> None:
    values = {"kafka": {"securityProtocol": "SSL"}, "postgres": {"caSecret": {"name": "ca"}}}
    for given in ({}, values):
        workload = of_kind(helm.render(chart, given), *WORKLOADS)[0]
        spec = pod_spec(workload)
        secrets = next(each for each in spec["volumes"] if each["name"] == "secrets")
        present = {
            f"/etc/drivetrain/secrets/{item['path']}"
            for source in secrets["projected"]["sources"]
            for item in source["secret"]["items"]
        }
        named = {
            value
            for value in environment(spec["containers"][0]).values()
            if value.startswith("/etc/drivetrain/secrets/")
        }
        assert named == present


@EACH
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT"])
def test_a_service_accepts_the_settings_that_its_chart_gives(
    helm: Helm, chart: str, protocol: str, tmp_path: Path
) -> None:
    workload = of_kind(helm.render(chart, {"kafka": {"securityProtocol": protocol}}), *WORKLOADS)[0]
    given = environment(pod_spec(workload)["containers"][0])
    secret = tmp_path / "secret"
    secret.write_text("at-least-16-characters")
    in_files = {
        name: str(secret) if name.endswith("_FILE") else value for name, value in given.items()
    }
    in_files.pop("DRIVETRAIN_REPLICA", None)  # of the pod's label
    settings = load(CLASSES[chart], in_files)
    assert settings.kafka_security_protocol == protocol
    assert settings.ops_port == 9090
    assert (settings.kafka_sasl_username == chart) == protocol.startswith("SASL")


def test_only_the_scheduler_has_rights(helm: Helm) -> None:
    objects = helm.render("drivetrain")
    accounts = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceAccount")}
    assert all(each["automountServiceAccountToken"] is False for each in accounts.values())
    bindings = of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    subjects = {subject["name"] for each in bindings for subject in each["subjects"]}
    assert subjects == {"drivetrain-scheduler"}
    with_token = {
        workload["metadata"]["name"]
        for workload in of_kind(objects, *WORKLOADS)
        if pod_spec(workload)["automountServiceAccountToken"]
    }
    assert with_token == {"drivetrain-scheduler"}
    used = {pod_spec(each)["serviceAccountName"] for each in of_kind(objects, *WORKLOADS)}
    assert set(accounts) == used | {"drivetrain-job"}


def test_the_launchers_tests_run_with_the_rights_of_the_chart(helm: Helm) -> None:
    objects = helm.render("scheduler")
    (role,) = of_kind(objects, "Role")
    (cluster_role,) = of_kind(objects, "ClusterRole")
    assert role["rules"] == RULES
    assert cluster_role["rules"] == CLUSTER_RULES
    (narrow,) = of_kind(helm.render("scheduler", {"seeOtherPods": False}), "ClusterRole")
    assert narrow["rules"] == NODE_RULES


def test_the_rights_are_in_the_namespace_of_the_pods(helm: Helm) -> None:
    objects = helm.render("scheduler", {"jobs": {"namespace": "research"}})
    for each in of_kind(objects, "Role", "RoleBinding"):
        assert each["metadata"]["namespace"] == "research"
    container = pod_spec(of_kind(objects, "Deployment")[0])["containers"][0]
    assert environment(container)["DRIVETRAIN_KUBERNETES_NAMESPACE"] == "research"


@EACH
def test_probes_are_on_the_port_of_operations(helm: Helm, chart: str) -> None:
    container = pod_spec(of_kind(helm.render(chart), *WORKLOADS)[0])["containers"][0]
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    given = environment(container)
    assert ports["ops"] == given["DRIVETRAIN_OPS_PORT"]
    assert ports.get("http") == given.get("DRIVETRAIN_HTTP_PORT")
    assert container["startupProbe"]["httpGet"] == {"path": "/livez", "port": "ops"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "ops"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "ops"}


@EACH
def test_ports_listen_on_every_address_of_both_families(helm: Helm, chart: str) -> None:
    for given, expected in (({}, "::"), ({"bindAddress": "0.0.0.0"}, "0.0.0.0")):
        workload = of_kind(helm.render(chart, given), *WORKLOADS)[0]
        variables = environment(pod_spec(workload)["containers"][0])
        bound = {value for name, value in variables.items() if name.endswith("_HOST")}
        assert bound == {expected}
    with pytest.raises(Refused, match="bindAddress"):
        helm.render(chart, {"bindAddress": "127.0.0.1"})


@EACH
@pytest.mark.parametrize("seconds", [None, 0.5, 90])
def test_a_pod_gets_longer_to_stop_than_its_service_takes(
    helm: Helm, chart: str, seconds: float | None
) -> None:
    values = {} if seconds is None else {"settings": {"shutdown_seconds": seconds}}
    spec = pod_spec(of_kind(helm.render(chart, values), *WORKLOADS)[0])
    default = SchedulerSettings.model_fields["shutdown_seconds"].default
    # Then the outbox is drained (5 s), Postgres closed (5 s), and a preStop waits before it all.
    waits = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {})
    needed = (seconds or default) + 10 + waits.get("seconds", 0)
    assert spec["terminationGracePeriodSeconds"] > needed


def test_two_at_once_never_start_where_that_is_wrong(helm: Helm) -> None:
    single = {
        each["metadata"]["name"]: each for each in of_kind(helm.render("drivetrain"), "Deployment")
    }
    assert set(single) == {"drivetrain-scheduler", "drivetrain-checkpoints"}
    for workload in single.values():
        assert workload["spec"]["strategy"] == {"type": "Recreate"}
        assert workload["spec"]["replicas"] == 1


@pytest.mark.parametrize("chart", ["hpo", "metrics", "cost", "gateway"])
def test_each_replica_has_a_number_of_its_own(helm: Helm, chart: str) -> None:
    objects = helm.render(chart, {"replicas": 3})
    (workload,) = of_kind(objects, "StatefulSet")
    assert workload["spec"]["replicas"] == 3
    (number,) = [
        each
        for each in pod_spec(workload)["containers"][0]["env"]
        if each["name"] == "DRIVETRAIN_REPLICA"
    ]
    path = number["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['apps.kubernetes.io/pod-index']"
    (service,) = of_kind(objects, "Service")
    assert workload["spec"]["serviceName"] == service["metadata"]["name"]
    (budget,) = of_kind(objects, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == workload["spec"]["selector"]


@EACH
def test_the_gateway_calls_a_service_by_a_name_that_it_answers_to(helm: Helm, chart: str) -> None:
    """A read port refuses other Host headers."""
    urls = environment(pod_spec(of_kind(helm.render("gateway"), "StatefulSet")[0])["containers"][0])
    url = urls.get(f"DRIVETRAIN_{chart.upper()}_URL")
    if url is None:
        return
    objects = helm.render(chart)
    (service,) = of_kind(objects, "Service")
    host = f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert url == f"http://{host}"
    container = pod_spec(of_kind(objects, *WORKLOADS)[0])["containers"][0]
    assert f'"{host}"' in environment(container)["DRIVETRAIN_ALLOWED_HOSTS"]


def test_single_charts_find_each_other_by_the_names_of_their_releases(helm: Helm) -> None:
    said = helm.run(
        *("template", "drivetrain-gateway", helm.packages["gateway"], "--kube-version", KUBERNETES),
        *("--values", helm.values_file(NEEDED["gateway"])),
    )
    assert "value: http://drivetrain-metrics:8080" in said


@pytest.mark.parametrize(
    ("chart", "key", "named"),
    [
        ("cost", "kafka", "kafka.bootstrapServers is empty"),
        ("checkpoints", "objectStore", "objectStore.url is empty"),
        ("scheduler", "jobs", "jobs.image is empty"),
    ],
)
def test_a_missing_value_is_named(helm: Helm, chart: str, key: str, named: str) -> None:
    given = {name: value for name, value in NEEDED[chart].items() if name != key}
    with pytest.raises(Refused, match=named):
        helm.run(
            *("template", "x", helm.packages[chart], "--kube-version", KUBERNETES),
            *("--values", helm.values_file(given)),
        )


@pytest.mark.parametrize(
    ("chart", "given", "told"),
    [
        *(
            (chart, {"podLabels": {name: "x"}}, f"podLabels: pods are selected by {name}")
            for chart in ("setup", "scheduler", "gateway")
            for name in (
                "app.kubernetes.io/name",
                "app.kubernetes.io/instance",
                "app.kubernetes.io/part-of",
                "drivetrain.dev/run",
            )
        ),
        *(
            (
                "hpo",
                {"autoscaling": {"enabled": enabled, "minReplicas": 3, "maxReplicas": 2}},
                r"autoscaling.minReplicas \(3\) is above autoscaling.maxReplicas \(2\): lower",
            )
            for enabled in (True, False)
        ),
        (
            "gateway",
            {"ingress": {"enabled": True, "host": "*.example.com"}},
            "ingress.host is a wildcard: list the names .* in hosts",
        ),
        (
            "setup",
            {"extraEnv": [{"name": "AWS_REGION", "value": "x"}]},
            "extraEnv: AWS_REGION is set already",
        ),
        (
            "cost",
            {"extraEnv": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]},
            "extraEnv: A is set already",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    helm: Helm, chart: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        helm.render(chart, given)


def test_labels_of_the_values_are_added(helm: Helm) -> None:
    labels = {"team": "research", "app.kubernetes.io/instance": "other"}
    given = {
        "podLabels": {"team": "research"},
        "podMonitor": {"enabled": True, "labels": labels},
        "networkPolicy": {"enabled": False},
    }
    objects = helm.render("cost", given)
    (workload,) = of_kind(objects, "StatefulSet")
    assert workload["spec"]["template"]["metadata"]["labels"] == {
        **workload["spec"]["selector"]["matchLabels"],
        "app.kubernetes.io/part-of": "drivetrain",
        "team": "research",
    }
    (monitor,) = of_kind(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["team"] == "research"
    assert monitor["metadata"]["labels"]["app.kubernetes.io/instance"] == "drivetrain"


def test_helm_names_a_misspelt_value_of_a_service_in_the_umbrella(helm: Helm) -> None:
    with pytest.raises(Refused, match="bootstrapServer"):
        helm.render("drivetrain", {"cost": {"kafka": {"bootstrapServer": "a:1"}}})


def test_a_value_of_one_service_counts_before_the_global_one(helm: Helm) -> None:
    values = {"cost": {"kafka": {"bootstrapServers": "other:9093"}}}
    brokers = {
        each["metadata"]["name"]: environment(pod_spec(each)["containers"][0]).get(
            "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS"
        )
        for each in of_kind(helm.render("drivetrain", values), "Deployment", "StatefulSet")
    }
    assert brokers.pop("drivetrain-cost") == "other:9093"
    assert set(brokers.values()) == {"kafka:9093"}


@pytest.mark.parametrize("release", ["drivetrain", "ml-cost", "gateway", "a" * 53])
def test_the_gateway_finds_its_services_whatever_the_release_is_called(
    helm: Helm, release: str
) -> None:
    text = helm.run(
        *("template", release, helm.packages["drivetrain"], "--kube-version", KUBERNETES),
        *("--values", helm.values_file(NEEDED["drivetrain"])),
    )
    objects = [each for each in yaml.safe_load_all(text) if each]
    gateway = next(
        each
        for each in of_kind(objects, "StatefulSet")
        if each["metadata"]["labels"]["app.kubernetes.io/name"] == "gateway"
    )
    given = environment(pod_spec(gateway)["containers"][0])
    for name in ("metrics", "cost", "scheduler"):
        (service,) = [
            each
            for each in of_kind(objects, "Service")
            if each["metadata"]["labels"]["app.kubernetes.io/name"] == name
        ]
        url = given[f"DRIVETRAIN_{name.upper()}_URL"]
        assert url == f"http://{service['metadata']['name']}:8080"


def test_policies_open_the_ports_of_the_addresses(helm: Helm) -> None:
    given = {
        "kafka": {"bootstrapServers": "a:9094,b:9093"},
        "objectStore": {"endpointUrl": "http://minio:9000/x"},
        "jobs": {"kafka": {"bootstrapServers": "edge:19092"}},
    }
    of_jobs, of_service = of_kind(helm.render("scheduler", given), "NetworkPolicy")
    ports = [
        [{each["port"] for each in rule.get("ports", ())} for rule in policy["spec"]["egress"]]
        for policy in (of_service, of_jobs)
    ]
    assert {9092, 9093, 9094} in ports[0]
    assert {9092, 9093, 19092} in ports[1]
    assert all({443, 9000} in each for each in ports)


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://minio", 80),
        ("http://minio/", 80),
        ("HTTP://minio:/x", 80),
        ("http://minio:9000/x", 9000),
        ("https://minio/bucket:7", 443),
        ("https://key:5@minio", 443),
        ("https://key:5@minio:9000", 9000),
        ("https://minio?a=b:5", 443),
        ("http://[fd00::5]/", 80),
        ("https://[fd00::5]", 443),
        ("http://[fd00::5]:9000/x", 9000),
        ("https://[::ffff:10.0.0.5]#x:5", 443),
    ],
)
def test_a_policy_opens_the_port_of_a_url(helm: Helm, url: str, port: int) -> None:
    given = {
        "objectStore": {"endpointUrl": url},
        "networkPolicy": {"objectStore": {"ports": [1]}, "kafka": {"ports": [2]}},
        "kafka": {"bootstrapServers": "[fd00::5]:19092,fd00::7, [fd00::6] ,SSL://b:9094"},
    }
    (policy,) = of_kind(helm.render("checkpoints", given), "NetworkPolicy")
    opened = [{each["port"] for each in rule["ports"]} for rule in policy["spec"]["egress"]]
    assert {1, port} in opened
    assert {2, 19092, 9094} in opened


def test_spans_go_to_the_collector_where_one_is_named(helm: Helm) -> None:
    """By services and by pods of jobs, through their policies; without one, by nobody."""
    given = {"global": {"tracing": {"endpoint": "http://otel.monitoring:4318"}}}
    for values, expected in ((given, {"http://otel.monitoring:4318"}), ({}, set())):
        objects = helm.render("drivetrain", values)
        containers = [
            workload["spec"]["template"]["spec"]["containers"][0]
            for workload in of_kind(objects, "Deployment", "StatefulSet")
        ]
        named = [{it["name"]: it.get("value") for it in each["env"]} for each in containers]
        found = [variables.get("OTEL_EXPORTER_OTLP_ENDPOINT") for variables in named]
        assert set(found) == (expected or {None})
        rules = [
            {each["port"] for rule in policy["spec"]["egress"] for each in rule.get("ports", ())}
            for policy in of_kind(objects, "NetworkPolicy")
            if "Egress" in policy["spec"]["policyTypes"]
        ]
        assert sum(4318 in ports for ports in rules) == (len(containers) + 1 if expected else 0)


def test_a_monitor_that_the_policy_would_keep_out_is_refused(helm: Helm) -> None:
    given = {"podMonitor": {"enabled": True}}
    with pytest.raises(Refused, match=r"networkPolicy\.monitoring\.from is empty"):
        helm.render("metrics", given)
    assert of_kind(
        helm.render("metrics", {**given, "networkPolicy": {"enabled": False}}), "PodMonitor"
    )


def test_monitors_set_the_labels_that_alerts_select_by(helm: Helm) -> None:
    given = {"podMonitor": {"enabled": True}, "networkPolicy": {"enabled": False}}
    for name in SERVICES:
        (monitor,) = of_kind(helm.render(name, given), "PodMonitor")
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        labels = {each["targetLabel"]: each["replacement"] for each in endpoint["relabelings"]}
        assert labels == {"job": "drivetrain", "service": name}


def test_dashboards_and_rules_come_with_the_chart_of_all(helm: Helm) -> None:
    assert not of_kind(helm.render("drivetrain"), "PrometheusRule")
    given = {
        "monitoring": {
            "dashboards": {"enabled": True},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        }
    }
    objects = helm.render("drivetrain", given)
    boards = [
        each
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    deploy = CHARTS.parent
    assert [each["data"] for each in boards] == [
        {f"drivetrain-{it.name}": it.read_text() for it in deploy.glob("dashboards/json/*.json")}
    ]
    (rules,) = of_kind(objects, "PrometheusRule")
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    assert rules["spec"]["groups"] == [
        group
        for path in sorted(deploy.glob("alerts/*.yaml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]


def test_a_service_can_be_left_out(helm: Helm) -> None:
    objects = helm.render("drivetrain", {"tags": {"cost": False, "setup": False}})
    names = {each["metadata"]["name"] for each in of_kind(objects, *WORKLOADS)}
    assert names == {f"drivetrain-{name}" for name in SERVICES if name != "cost"}


@pytest.mark.parametrize("chart", ["hpo", "metrics", "cost", "gateway"])
def test_a_service_scales_by_lag_or_by_cpu(helm: Helm, chart: str) -> None:
    by_lag = helm.render(chart, {"autoscaling": {"enabled": True, "by": "lag", "lag": 1_000_000}})
    (scaled,) = of_kind(by_lag, "ScaledObject")
    for trigger in scaled["spec"]["triggers"]:
        metadata = trigger["metadata"]
        assert metadata["consumerGroup"].startswith(f"drivetrain.{chart}")
        assert metadata["topic"].startswith("drivetrain.")
        assert metadata["lagThreshold"] == "1000000"
        assert (metadata["sasl"], metadata["tls"]) == ("scram_sha512", "enable")
    assert of_kind(by_lag, "TriggerAuthentication")
    by_cpu = helm.render(chart, {"autoscaling": {"enabled": True, "by": "cpu"}})
    (scaler,) = of_kind(by_cpu, "HorizontalPodAutoscaler")
    for objects, target in ((by_lag, scaled), (by_cpu, scaler)):
        (workload,) = of_kind(objects, "StatefulSet")
        assert "replicas" not in workload["spec"]
        assert target["spec"]["scaleTargetRef"]["name"] == workload["metadata"]["name"]


def test_the_flows_are_those_of_the_table(helm: Helm) -> None:
    text = (ROOT / "docs/guides/network.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([\d, ]+|any) \|", text, re.MULTILINE)
    documented = {(source, target, ports) for source, target, ports in rows}
    assert len(documented) == len(rows) > 20
    policies = of_kind(helm.render("drivetrain"), "NetworkPolicy")
    assert {flow for policy in policies for flow in _egress(policy)} == {
        flow for flow in documented if flow[0] != "people"
    }
    assert {flow for policy in policies for flow in _ingress(policy)} == {
        flow for flow in documented if flow[1] in (*SERVICES, "pods of jobs")
    }


def test_every_pod_is_under_a_policy_that_denies_the_rest(helm: Helm) -> None:
    objects = helm.render("drivetrain")
    selected = [
        each["spec"]["podSelector"].get("matchLabels")
        for each in of_kind(objects, "NetworkPolicy")
        if each["spec"]["policyTypes"] == ["Ingress", "Egress"]
    ]
    for workload in of_kind(objects, *WORKLOADS):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert [each for each in selected if each and each.items() <= labels.items()]


# The comment above a rule of a rendered policy names the target; here by its ports and selectors.
_PEERS = {
    (9092, 9093): "Kafka",
    (5432,): "Postgres",
    (443,): "object store",
    (443, 6443): "Kubernetes API server",
}


def _egress(policy: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for rule in policy["spec"]["egress"]:
        ports = tuple(each["port"] for each in rule.get("ports", []))
        if ports == (53, 53):
            continue
        targets = [_name(each["podSelector"]) for each in rule.get("to", [])] or [_PEERS[ports]]
        for target in targets:
            yield _name(policy["spec"]["podSelector"]), target, _text(ports)


def _ingress(policy: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for rule in policy["spec"].get("ingress", []):
        ports = tuple(each["port"] for each in rule.get("ports", []))
        sources = [_name(each["podSelector"]) for each in rule.get("from", [])] or ["people"]
        for source in sources:
            yield source, _name(policy["spec"]["podSelector"]), _text(ports)


def _name(selector: dict[str, Any]) -> str:
    labels = selector.get("matchLabels", {})
    return labels.get("app.kubernetes.io/name", "pods of jobs")


def _text(ports: tuple[int, ...]) -> str:
    return ", ".join(str(port) for port in ports) or "any"
