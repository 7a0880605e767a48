"""Options and variables: what is taken, and what is refused by name."""

from pathlib import Path

import pytest

from services.standalone.options import BadOption, parse
from services.standalone.up import wanted_parts


def test_an_outside_part_takes_the_place_of_ours() -> None:
    options = parse([], {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"})
    names = [part.name for part in wanted_parts(options)]
    assert "kafka" not in names
    assert names[:2] == ["postgres", "topics"]


def test_a_misspelt_variable_is_refused_by_its_name() -> None:
    with pytest.raises(BadOption, match="DRIVETRAIN_KAFKA_BOOTSTRAP_SERVER:"):
        parse([], {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVER": "kafka:9092"})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("DRIVETRAIN_KEEP_SAMPLE_DAYS", "no such setting; did you mean DRIVETRAIN_KEEP_SAMPLES_DA"),
        ("DRIVETRAIN_KUBERNETES_IMAGES", "no such setting; did you mean DRIVETRAIN_KUBERNETES_IM"),
        ("DRIVETRAIN_XYZ", "no such setting; services/standalone/README.md"),
        ("DRIVETRAIN_API_TOKEN", "the platform on one machine sets it itself"),
        ("DRIVETRAIN_NODES", "the platform on one machine sets it itself"),
    ],
)
def test_a_variable_that_is_not_taken_is_refused_with_what_to_do(name: str, reason: str) -> None:
    with pytest.raises(BadOption, match=f"^{name}: {reason}"):
        parse([], {name: "1"})


def test_files_of_the_callers_settings_are_found_by_the_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"DRIVETRAIN_WEBHOOKS": "hooks.yaml", "DRIVETRAIN_TENANT_CLASSES_FILE": "classes"}
    taken = parse([], {**given, "DRIVETRAIN_KEEP_LOGS_DAYS": "7"}).outside
    assert taken == {
        "DRIVETRAIN_WEBHOOKS": str(tmp_path / "hooks.yaml"),
        "DRIVETRAIN_TENANT_CLASSES_FILE": str(tmp_path / "classes"),
        "DRIVETRAIN_KEEP_LOGS_DAYS": "7",
    }


def test_variables_of_the_client_and_of_others_are_ignored() -> None:
    environment = {"DRIVETRAIN_TOKEN": "t", "DRIVETRAIN_HOME": "/tmp/x", "PATH": "/bin"}
    assert parse([], environment).outside == {}


def test_a_password_for_no_outside_broker_is_refused() -> None:
    with pytest.raises(BadOption, match="BOOTSTRAP_SERVERS"):
        parse([], {"DRIVETRAIN_KAFKA_SASL_PASSWORD": "secret"})


@pytest.mark.parametrize("text", ["kafka", "kafka=", "kafka=0", "kafka=70000", "nothing=1", "=1"])
def test_a_bad_port_is_refused_naming_the_form(text: str) -> None:
    with pytest.raises(BadOption, match="NAME=PORT"):
        parse(["--port", text], {})


def test_only_infrastructure_starts_no_service() -> None:
    options = parse(["--only-infrastructure"], {})
    assert [part.name for part in wanted_parts(options)] == [
        *("kafka", "postgres", "topics", "access"),
    ]


def test_three_brokers_run_only_where_three_are_wanted() -> None:
    options = parse(["--only-infrastructure", "--brokers", "3"], {})
    names = [part.name for part in wanted_parts(options, options.num_brokers or 1)]
    assert names == [*("kafka", "kafka-2", "kafka-3"), *("postgres", "topics", "access")]


def test_brokers_beside_an_outside_broker_are_refused() -> None:
    with pytest.raises(BadOption, match="--brokers is for the embedded Kafka"):
        parse(["--brokers", "3"], {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"})


S3 = {"DRIVETRAIN_OBJECT_STORE_URL": "s3://bucket/prefix"}


def test_with_pods_in_a_cluster_no_template_runs_here() -> None:
    options = parse([], {"DRIVETRAIN_LAUNCHER": "kubernetes", **S3})
    assert "template" not in [part.name for part in wanted_parts(options)]


@pytest.mark.parametrize(
    ("environment", "fix"),
    [
        ({"DRIVETRAIN_LAUNCHER": "kubernetes"}, "OBJECT_STORE_URL=s3://"),
        ({"DRIVETRAIN_LAUNCHER": "slurm", **S3}, "write kubernetes, or leave it out"),
        ({"DRIVETRAIN_KUBERNETES_IMAGE": "x"}, "without DRIVETRAIN_LAUNCHER=kubernetes"),
    ],
)
def test_a_cluster_that_cannot_work_is_refused_with_the_fix(
    environment: dict[str, str], fix: str
) -> None:
    with pytest.raises(BadOption, match=fix):
        parse([], environment)


def test_the_path_of_a_certificate_holds_for_every_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have another working directory than the caller."""
    monkeypatch.chdir(tmp_path)
    broker = {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "kafka:9093"}
    options = parse([], broker | {"DRIVETRAIN_KAFKA_CA_PATH": "ca.crt"})
    assert options.outside["DRIVETRAIN_KAFKA_CA_PATH"] == str(tmp_path / "ca.crt")
    with pytest.raises(BadOption, match="KAFKA_CA_PATH is given without DRIVETRAIN_KAFKA_BOOT"):
        parse([], {"DRIVETRAIN_KAFKA_CA_PATH": "ca.crt"})
