"""What the settings refuse before anything is granted by them."""

import pytest
from pydantic import ValidationError

from services.runtime.errors import ConfigurationError
from services.runtime.settings import load
from services.scheduler.settings import SchedulerSettings

GPU = {"device_type": "nvidia-h200"}


def make_settings(*nodes: dict) -> SchedulerSettings:
    facts = {"kafka_bootstrap_servers": "nowhere:1", "postgres_dsn": "postgresql://nowhere"}
    return SchedulerSettings.model_validate({**facts, "nodes": nodes})


OVERLAPPING = {
    "no first_device": ({"node_id": "a", "slots": 1, **GPU}, {"node_id": "b", "slots": 1, **GPU}),
    "the last is the next one's first": (
        {"node_id": "a", "slots": 3, **GPU},
        {"node_id": "b", "slots": 2, "first_device": 2, **GPU},
    ),
    "of two types": (
        {"node_id": "a", "slots": 2, "device_type": "nvidia-a100"},
        {"node_id": "b", "slots": 2, "first_device": 1, **GPU},
    ),
}


@pytest.mark.parametrize("nodes", OVERLAPPING.values(), ids=OVERLAPPING.keys())
def test_a_device_belongs_to_one_node(nodes):
    with pytest.raises(ValidationError, match="first_device"):
        make_settings(*nodes)


def test_devices_side_by_side_and_shared_cpus_are_fine():
    make_settings(
        {"node_id": "a", "slots": 2, **GPU},
        {"node_id": "b", "slots": 2, "first_device": 2, **GPU},
        {"node_id": "c", "slots": 8},
        {"node_id": "d", "slots": 8},
    )


def loaded(**given: str) -> SchedulerSettings:
    facts = {"KAFKA_BOOTSTRAP_SERVERS": "kafka:9093", "POSTGRES_DSN": "postgresql://nowhere"}
    return load(SchedulerSettings, {f"DRIVETRAIN_{k}": v for k, v in (facts | given).items()})


SCRAM = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "KAFKA_SASL_USERNAME": "scheduler",
    "KAFKA_SASL_PASSWORD": "hunter2",
}
MTLS = {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_CERTIFICATE_PATH": "/c", "KAFKA_KEY_PATH": "/k"}
POD_USER = {"PODS_KAFKA_USERNAME": "pod", "PODS_KAFKA_PASSWORD": "of-pods"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("PLAINTEXT", None, None)),
        (POD_USER, ("SASL_PLAINTEXT", None, "pod")),
        (SCRAM, ("SASL_SSL", "SCRAM-SHA-512", "scheduler")),
        (SCRAM | POD_USER, ("SASL_SSL", "SCRAM-SHA-512", "pod")),
        (
            MTLS | POD_USER | {"PODS_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"},
            ("SASL_SSL", None, "pod"),
        ),
        (
            SCRAM
            | {
                "PODS_KAFKA_SECURITY_PROTOCOL": "SSL",
                "PODS_KAFKA_CERTIFICATE_PATH": "/pod.crt",
                "PODS_KAFKA_KEY_PATH": "/pod.key",
            },
            ("SSL", None, None),
        ),
    ],
)
def test_pods_connect_as_the_scheduler_where_nothing_else_is_set(given, expected):
    login = loaded(**given).pods_login()
    assert (login["protocol"], login["mechanism"], login["username"]) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (MTLS, "not given the scheduler's key: set DRIVETRAIN_PODS_KAFKA_CERTIFICATE_PATH and"),
        (SCRAM | {"PODS_KAFKA_PASSWORD": "x"}, "PODS_KAFKA_PASSWORD is set without DRIVETRAIN_PO"),
        (MTLS | POD_USER, "PODS_KAFKA_USERNAME is set, but .*is SSL, .*: write SASL_SSL"),
    ],
)
def test_a_login_of_pods_that_contradicts_itself_is_refused(given, problem):
    with pytest.raises(ConfigurationError, match=problem):
        loaded(**given)


CLUSTER = {"LAUNCHER": "kubernetes", "KUBERNETES_IMAGE": "drivetrain/training:1"}


def test_a_cluster_is_described_by_the_settings():
    settings = loaded(
        **CLUSTER,
        KUBERNETES_RUN_AS_USER="image",
        KUBERNETES_TOLERATIONS='[{"key": "gpu", "operator": "Exists"}]',
        KUBERNETES_EXTRA_RESOURCES='{"rdma/hca": "1"}',
        KUBERNETES_POOL_LABEL="example.com/pool",
    )
    rules = settings.pod_rules("train", "a1", 30.0)
    assert (rules.image, rules.namespace, rules.run_as_user) == (
        "drivetrain/training:1", "train", None,
    )  # fmt: skip
    assert rules.extra_resources == {"rdma/hca": "1"}
    assert settings.node_rules().pool_label == "example.com/pool"
    assert settings.node_rules().tolerations == rules.tolerations
    assert loaded(**CLUSTER, KUBERNETES_RUN_AS_USER="7").pod_rules("a", "a1", 1.0).run_as_user == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"LAUNCHER": "kubernetes"}, "DRIVETRAIN_KUBERNETES_IMAGE is missing"),
        (CLUSTER | {"NODES": '[{"node_id": "a", "slots": 1}]'}, "the nodes come from the cluster"),
        (CLUSTER | {"KUBERNETES_SLOT_CPU": "2 cores"}, "DRIVETRAIN_KUBERNETES_SLOT_CPU: '2 cores'"),
        (CLUSTER | {"KUBERNETES_SLOT_MEMORY": "0"}, "KUBERNETES_SLOT_MEMORY: it must be above 0"),
    ],
)
def test_what_a_cluster_cannot_mean_is_refused(given, words):
    with pytest.raises(ConfigurationError) as refused:
        loaded(**given)
    assert words in str(refused.value)
