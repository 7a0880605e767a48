"""The environment of each part: what is in it, and what is not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from drivetrain_schemas.access import ACCESS
from drivetrain_schemas.topics import SERVICES
from services.runtime.settings import load
from services.standalone.credentials import Credentials
from services.standalone.home import Home
from services.standalone.nodes import VirtualNode
from services.standalone.own_settings import CLASSES
from services.standalone.parts import PARTS, Layer, Plan, parts_of, port_names

CREDENTIALS = Credentials(
    kafka_username="drivetrain",
    kafka_password="kafka-secret",
    postgres_password="postgres-secret",
    api_token="token",
    cookie_secret="cookie-secret",
    read_token="read-token",
    run_token_key="run-token-key",
    kafka_users={name: f"kafka-secret-of-{name}" for name in ACCESS},
    postgres_roles={name: f"postgres-secret-of-{name}" for name in (*SERVICES, "reader")},
)


def make_plan(root: Path = Path("/tmp/home"), **outside: str) -> Plan:
    ports = {name: 20_000 + index for index, name in enumerate(port_names())}
    nodes = (VirtualNode("node-a", "default", "cpu", 1),)
    return Plan(Home(root), ports, CREDENTIALS, nodes, Path("/tmp/jars"), outside)


def variables_of(name: str, plan: Plan) -> dict[str, str]:
    part = next(part for part in PARTS if part.name == name)
    environment = part.build(plan).launch.environment
    return {key: value for key, value in environment.items() if key.startswith("DRIVETRAIN_")}


def test_a_service_gets_the_connections_and_nothing_more() -> None:
    assert variables_of("hpo", make_plan()).keys() == {
        "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS",
        "DRIVETRAIN_KAFKA_SASL_USERNAME",
        "DRIVETRAIN_KAFKA_SASL_PASSWORD",
        "DRIVETRAIN_POSTGRES_DSN",
        "DRIVETRAIN_OBJECT_STORE_URL",
        "DRIVETRAIN_OPS_PORT",
        "DRIVETRAIN_HTTP_PORT",
        "DRIVETRAIN_READ_TOKEN",
    }


def test_the_callers_own_variables_reach_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIVETRAIN_TOKEN", "of the client")
    monkeypatch.setenv("DRIVETRAIN_HOME", "/elsewhere")
    assert "DRIVETRAIN_TOKEN" not in variables_of("cost", make_plan())
    assert "DRIVETRAIN_HOME" not in variables_of("template", make_plan())


OWN = {
    "scheduler": {"DRIVETRAIN_LEASE_SECONDS": "30", "DRIVETRAIN_CODE_URLS": '["s3://builds/"]'},
    "checkpoints": {"DRIVETRAIN_COMMIT_SECONDS": "5"},
    "metrics": {
        "DRIVETRAIN_WEBHOOKS": "/etc/webhooks.yaml",
        "DRIVETRAIN_WEBHOOK_HOSTS": '["hooks.example.com"]',
        "DRIVETRAIN_KEEP_SAMPLES_DAYS": "30",
        "DRIVETRAIN_COLD_AFTER_HOURS": "1",
        "DRIVETRAIN_MAX_LOG_BYTES_PER_SECOND_OF_RUN": "65536",
    },
    "cost": {"DRIVETRAIN_PRICE_BOOK": "/etc/prices.yaml"},
    "gateway": {"DRIVETRAIN_CODE_QUOTA_BYTES": str(2**30)},
}


@pytest.mark.parametrize("name", SERVICES)
def test_the_caller_sets_what_each_service_has_of_its_own(name: str) -> None:
    """As on a cluster; what the platform sets itself stays as it is."""
    outside = {key: value for of_one in OWN.values() for key, value in of_one.items()}
    tried = {"DRIVETRAIN_API_TOKEN": "x" * 16, "DRIVETRAIN_OPS_PORT": "1"}
    before = variables_of(name, make_plan())
    after = variables_of(name, make_plan(**outside, **tried))
    assert after == before | OWN.get(name, {})
    secrets = {key: "x" * 16 for key in after if key.endswith(("TOKEN", "SECRET", "TOKEN_KEY"))}
    load(CLASSES[name], after | secrets)


def test_only_the_gateway_knows_the_token() -> None:
    plan = make_plan()
    parts = [part.name for part in parts_of(1)]
    environment = {name for name in parts if "token" in variables_of(name, plan).values()}
    assert environment == {"gateway"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_logs_in_as_itself_and_knows_no_other_secret(name: str) -> None:
    environment = variables_of(name, make_plan())
    assert environment["DRIVETRAIN_KAFKA_SASL_USERNAME"] == name
    assert environment["DRIVETRAIN_POSTGRES_DSN"].startswith(f"postgresql://{name}:")
    of_others = [
        secret
        for other in (*ACCESS, "reader")
        # The scheduler starts the pods, and gives them their own user.
        if other not in (name, "pod" if name == "scheduler" else name)
        for secret in (f"kafka-secret-of-{other}", f"postgres-secret-of-{other}")
    ]
    everything = " ".join(environment.values())
    assert [secret for secret in (*of_others, "kafka-secret ") if secret in everything + " "] == []


def test_the_scheduler_gives_pods_a_user_of_their_own() -> None:
    environment = variables_of("scheduler", make_plan())
    assert environment["DRIVETRAIN_PODS_KAFKA_USERNAME"] == "pod"
    assert environment["DRIVETRAIN_PODS_KAFKA_PASSWORD"] == "kafka-secret-of-pod"


def test_an_outside_brokers_operator_may_name_the_pods_user() -> None:
    broker = {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"}
    assert "DRIVETRAIN_PODS_KAFKA_USERNAME" not in variables_of("scheduler", make_plan(**broker))
    plan = make_plan(**broker, DRIVETRAIN_PODS_KAFKA_USERNAME="pods")
    assert variables_of("scheduler", plan)["DRIVETRAIN_PODS_KAFKA_USERNAME"] == "pods"


def test_services_and_pods_connect_to_a_secured_outside_broker() -> None:
    secured = {
        "DRIVETRAIN_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "DRIVETRAIN_KAFKA_CA_PATH": "/ca.crt",
    }
    of_pods = {"DRIVETRAIN_PODS_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512"}
    broker = {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "kafka:9093"}
    plan = make_plan(**broker, **secured, **of_pods)
    for name in ("topics", "cost", "scheduler"):
        assert secured.items() <= variables_of(name, plan).items()
    assert of_pods.items() <= variables_of("scheduler", plan).items()
    assert not of_pods.keys() & variables_of("cost", plan).keys()


def test_services_get_the_connections_of_outside_parts() -> None:
    plan = make_plan(
        DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS="kafka:9092",
        DRIVETRAIN_POSTGRES_DSN="postgresql://elsewhere/x",
        DRIVETRAIN_OBJECT_STORE_URL="s3://bucket/prefix",
    )
    environment = variables_of("cost", plan)
    assert environment["DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS"] == "kafka:9092"
    assert environment["DRIVETRAIN_POSTGRES_DSN"] == "postgresql://elsewhere/x"
    assert environment["DRIVETRAIN_OBJECT_STORE_URL"] == "s3://bucket/prefix"
    assert "DRIVETRAIN_KAFKA_SASL_PASSWORD" not in environment


def test_every_service_gets_the_expected_store() -> None:
    plan = replace(make_plan(), object_store_id="a" * 32)
    for part in PARTS:
        if part.layer is Layer.SERVICE:
            assert variables_of(part.name, plan)["DRIVETRAIN_OBJECT_STORE_ID"] == "a" * 32


def test_the_scheduler_gets_its_nodes_as_json() -> None:
    nodes = json.loads(variables_of("scheduler", make_plan())["DRIVETRAIN_NODES"])
    cpu = {"pool": "default", "device_type": "cpu", "slots": 1, "first_device": 0}
    assert nodes == [{"node_id": "node-a"} | cpu]


def test_the_template_serves_the_scheduler_and_starts_what_it_launches() -> None:
    plan = make_plan()
    template = next(part for part in PARTS if part.name == "template").build(plan)
    assert template.caller == "scheduler"
    options = dict(zip(template.launch.argv[3::2], template.launch.argv[4::2], strict=True))
    scheduler = variables_of("scheduler", plan)
    assert options == {
        "--socket": scheduler["DRIVETRAIN_TEMPLATE_SOCKET"],
        "--pods": scheduler["DRIVETRAIN_PODS_DIRECTORY"],
    }


def test_secrets_are_never_on_a_command_line() -> None:
    plan = make_plan()
    secrets = ("kafka-secret", "postgres-secret", "token", "cookie-secret", "run-token-key")
    for part in parts_of(1):
        argv = " ".join(part.build(plan).launch.argv)
        assert not [secret for secret in secrets if secret in argv], part.name


def test_the_template_socket_fits_however_deep_the_directory_is() -> None:
    deep = make_plan(Path("/tmp") / "/".join(["directory"] * 20))
    assert len(str(deep.template_socket)) <= 107
    assert deep.template_socket != make_plan(Path("/tmp/deeper")).template_socket


def test_every_need_is_declared_before_it_and_services_stop_before_what_they_need() -> None:
    layers: dict[str, Layer] = {}
    for part in PARTS:
        assert all(layers[need] <= part.layer for need in part.needs)
        layers[part.name] = part.layer


def test_with_pods_in_a_cluster_the_scheduler_gets_its_settings_and_no_nodes_of_ours() -> None:
    image = {"DRIVETRAIN_KUBERNETES_IMAGE": "training:1"}
    plan = make_plan(DRIVETRAIN_LAUNCHER="kubernetes", **image)
    variables = variables_of("scheduler", plan)
    assert variables["DRIVETRAIN_LAUNCHER"] == "kubernetes"
    assert variables["DRIVETRAIN_KUBERNETES_IMAGE"] == "training:1"
    assert variables["DRIVETRAIN_PODS_KAFKA_USERNAME"] == "pod"
    assert not {"DRIVETRAIN_NODES", "DRIVETRAIN_PODS_DIRECTORY"} & variables.keys()
    assert "DRIVETRAIN_LAUNCHER" not in variables_of("cost", plan)


def test_with_three_brokers_every_client_knows_all_and_topics_have_three_copies(
    tmp_path: Path,
) -> None:
    plan = replace(make_plan(tmp_path), num_brokers=3)
    servers = ",".join(f"127.0.0.1:{plan.ports[name]}" for name in ("kafka", "kafka-2", "kafka-3"))
    for name in ("topics", "cost", "gateway"):
        assert variables_of(name, plan)["DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS"] == servers
    assert variables_of("topics", plan)["DRIVETRAIN_TOPIC_REPLICATION_FACTOR"] == "3"
    chosen = replace(plan, outside={"DRIVETRAIN_TOPIC_REPLICATION_FACTOR": "2"})
    assert variables_of("topics", chosen)["DRIVETRAIN_TOPIC_REPLICATION_FACTOR"] == "2"
    assert "DRIVETRAIN_TOPIC_REPLICATION_FACTOR" not in variables_of("topics", make_plan())


def test_with_three_brokers_topics_wait_for_all_and_services_for_none() -> None:
    needs = {part.name: part.needs for part in parts_of(3)}
    assert needs["topics"] == ("kafka", "kafka-2", "kafka-3")
    assert needs["gateway"] == ("postgres", "topics", "access")
    assert "kafka" in next(part.needs for part in parts_of(1) if part.name == "gateway")
