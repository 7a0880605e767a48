"""The charts agree with the services: settings, ports, secrets, replicas. Needs no helm.

What they render is tested in `tests/kubernetes/`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from deploy import generate
from deploy.documents import settings
from drivetrain_schemas.access import ACCESS
from drivetrain_schemas.topics import REPORTS, SERVICES, TOPICS
from services.runtime.access.roles import MAX_CONNECTIONS_OF_A_ROLE
from services.runtime.database import MAX_CONNECTIONS, MAX_DEDICATED
from services.runtime.settings import PREFIX
from services.runtime.topics import TopicSettings

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "deploy" / "charts"
BASE = CHARTS / "service-base" / "templates"
CLASSES = {**settings.CLASSES, "setup": TopicSettings}
EACH = pytest.mark.parametrize("service", SERVICES)


def facts(service: str) -> str:
    return (CHARTS / service / "templates" / "_facts.tpl").read_text()


def is_true(service: str, fact: str) -> bool:
    return f"\n{fact}: true\n" in facts(service)


def schema_of(chart: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CHARTS / chart / "values.schema.json").read_text())
    return loaded


def problems(chart: str, values: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft7Validator(schema_of(chart)).iter_errors(values)]


def test_what_is_generated_is_up_to_date() -> None:
    stale = generate.differing(generate.documents())
    assert [str(path) for path in stale] == [], "run make gen"


@EACH
def test_a_role_has_a_connection_for_each_that_all_replicas_open(service: str) -> None:
    replicas = schema_of(service)["properties"]["replicas"].get("maximum", 1)
    guide = (ROOT / "docs" / "guides" / "install-kubernetes.md").read_text()
    (limit,) = re.findall(r"login connection limit (\d+) ", guide)
    assert replicas * (MAX_CONNECTIONS + MAX_DEDICATED) <= MAX_CONNECTIONS_OF_A_ROLE == int(limit)


@EACH
def test_no_service_opens_more_connections_beside_its_pool(service: str) -> None:
    """The one of the relay, and its own."""
    source = "".join(path.read_text() for path in (ROOT / "services" / service).rglob("*.py"))
    assert source.count(".dedicated_connection(") + 1 <= MAX_DEDICATED


def test_notes_tell_of_the_job_of_the_store_only_where_it_is_made() -> None:
    notes = (CHARTS / "setup" / "templates" / "NOTES.txt").read_text()
    always, _, sometimes = notes.partition("{{- if .Values.objectStore.initialise }}")
    assert "store" not in always
    assert "app.kubernetes.io/component=store" in sometimes
    assert sometimes.endswith("{{- end }}\n")


@pytest.mark.parametrize("chart", [*SERVICES, "setup"])
def test_every_setting_that_a_chart_gives_is_one_of_its_service(chart: str) -> None:
    templates = [*BASE.glob("*.tpl"), *(CHARTS / chart / "templates").iterdir()]
    given = {
        name
        for path in templates
        for name in re.findall(rf"name: {PREFIX}([A-Z_]+)$", path.read_text(), re.MULTILINE)
    }
    assert len(given) > 15
    unknown = {name for name in given if not _is_setting(chart, name)}
    assert unknown == set()


@EACH
def test_every_required_setting_is_given(service: str) -> None:
    text = facts(service) + "".join(path.read_text() for path in BASE.glob("*.tpl"))
    required = [
        name
        for name, field in settings.CLASSES[service].model_fields.items()
        if field.is_required()
    ]
    assert {"kafka_bootstrap_servers", "postgres_dsn"} <= set(required)
    for name in required:
        assert re.search(rf"name: {PREFIX}{name.upper()}(_FILE)?\n", text), name


@EACH
def test_a_setting_is_given_by_a_value_of_its_own_or_by_settings(service: str) -> None:
    """None is both, so none appears twice in the environment."""
    given = {
        name.removesuffix("_FILE").lower()
        for path in [*BASE.glob("*.tpl"), *(CHARTS / service / "templates").iterdir()]
        for name in re.findall(rf"name: {PREFIX}([A-Z_]+)$", path.read_text(), re.MULTILINE)
    }
    assert given & set(settings.own_settings(service)) == set()


@EACH
def test_a_chart_gives_the_secrets_that_its_service_uses(service: str) -> None:
    wiring = (ROOT / "services" / service / "wiring.py").read_text()
    has_http = "http=" in wiring
    assert is_true(service, "http") == has_http
    assert is_true(service, "readToken") == has_http
    assert is_true(service, "reports") == (REPORTS in ACCESS[service].reads)


@EACH
def test_only_who_uses_the_object_store_is_told_where_it_is(service: str) -> None:
    code = "".join(path.read_text() for path in (ROOT / "services" / service).rglob("*.py"))
    assert is_true(service, "objectStore") == ("object_store" in code)


@EACH
def test_a_chart_scales_by_topics_that_its_service_reads(service: str) -> None:
    found = re.findall(r"^  ([\w.]+): \[([\w., ]+)\]$", facts(service), re.MULTILINE)
    allowed = {topic.name for topic in ACCESS[service].reads}
    assert bool(found) == ("workload: StatefulSet" in facts(service))
    for group, topics in found:
        assert group in (service, f"{service}.streams")
        assert set(topics.split(", ")) <= allowed


@EACH
def test_no_more_replicas_than_partitions(service: str) -> None:
    """A replica without a partition would never be ready."""
    partitions = min(topic.partitions for topic in TOPICS if topic.partitions > 1)
    replicas = schema_of(service)["properties"]["replicas"]
    if "workload: Deployment" in facts(service):
        assert replicas == {"const": 1}
        assert "autoscaling" not in schema_of(service)["properties"]
    else:
        assert replicas == {"type": "integer", "minimum": 1, "maximum": partitions}


@pytest.mark.parametrize("chart", [*SERVICES, "setup", "drivetrain"])
def test_the_default_values_are_valid(chart: str) -> None:
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    Draft7Validator.check_schema(schema_of(chart))
    assert problems(chart, values) == []


@EACH
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 1}, "'replica' was unexpected"),
        ({"kafka": {"bootstrapServer": "a:1"}}, "'bootstrapServer' was unexpected"),
        ({"kafka": {"securityProtocol": "TLS"}}, "'TLS' is not one of"),
        ({"kafka": {"bootstrapServers": ["a:1"]}}, "is not of type 'string'"),
        ({"settings": {"log_level": "loud"}}, "'loud' is not one of"),
        ({"settings": {"kafka_sasl_password": "x"}}, "'kafka_sasl_password' was unexpected"),
        ({"extraEnv": [{"name": "DRIVETRAIN_LOG_LEVEL", "value": "info"}]}, "DRIVETRAIN_"),
        ({"global": {"kafka": {"servers": "a:1"}}}, "'servers' was unexpected"),
    ],
)
def test_a_wrong_key_or_type_is_refused_with_its_name(
    service: str, values: dict[str, Any], named: str
) -> None:
    found = problems(service, values)
    assert len(found) == 1
    assert named in found[0]


@EACH
def test_own_settings_are_accepted_with_their_types(service: str) -> None:
    defaults = settings.CLASSES[service].model_json_schema()["properties"]
    values = {name: defaults[name].get("default") for name in settings.own_settings(service)}
    assert problems(service, {"settings": values}) == []


def test_every_topic_and_user_is_a_resource_of_strimzi() -> None:
    topics = list(yaml.safe_load_all((ROOT / "deploy/kafka/topics.yaml").read_text()))
    assert {each["metadata"]["name"] for each in topics} == {f"drivetrain.{t.name}" for t in TOPICS}
    users = list(yaml.safe_load_all((ROOT / "deploy/kafka/users.yaml").read_text()))
    assert {each["metadata"]["name"] for each in users} == set(ACCESS)
    assert {each["apiVersion"] for each in (*topics, *users)} == {"kafka.strimzi.io/v1"}
    pod = next(each for each in users if each["metadata"]["name"] == "pod")
    rights = pod["spec"]["authorization"]["acls"]
    assert {(each["resource"]["name"], *each["operations"]) for each in rights} == {
        (f"drivetrain.{name}", "Write") for name in ("metrics", "logs", "reports")
    }


def _is_setting(chart: str, variable: str) -> bool:
    fields = set(CLASSES[chart].model_fields)
    return {variable.lower(), variable.removesuffix("_FILE").lower()} & fields != set()
