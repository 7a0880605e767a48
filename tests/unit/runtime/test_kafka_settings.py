"""Settings of a secured Kafka: contradictions and unusable files are refused with the fix."""

from pathlib import Path

import pytest
import trustme
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from drivetrain_schemas.kafka_security import OF_SERVICES, explain, explain_at
from services.runtime.errors import ConfigurationError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.settings import Settings, load
from services.runtime.tls import RenewedContext

ENOUGH = {
    "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "DRIVETRAIN_POSTGRES_DSN": "postgresql://127.0.0.1/drivetrain",
}
LOGIN = {"SASL_USERNAME": "cost", "SASL_PASSWORD": "hunter2"}


def settings(**kafka: str) -> Settings:
    return load(Settings, ENOUGH | {f"DRIVETRAIN_KAFKA_{name}": it for name, it in kafka.items()})


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(ca: trustme.CA, tmp_path: Path) -> dict[str, str]:
    """A CA, and a client certificate with its key."""
    client = ca.issue_cert(common_name="cost")
    paths = {"CA_PATH": "ca.crt", "CERTIFICATE_PATH": "user.crt", "KEY_PATH": "user.key"}
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    client.cert_chain_pems[0].write_to_path(tmp_path / "user.crt")
    client.private_key_pem.write_to_path(tmp_path / "user.key")
    return {name: str(tmp_path / path) for name, path in paths.items()}


@pytest.mark.parametrize(
    ("kafka", "protocol"),
    [
        ({}, "PLAINTEXT"),
        (LOGIN, "SASL_PLAINTEXT"),
        (LOGIN | {"SECURITY_PROTOCOL": "SASL_SSL"}, "SASL_SSL"),
        ({"SECURITY_PROTOCOL": "SSL"}, "SSL"),
    ],
)
def test_the_protocol_follows_from_the_login_where_it_is_not_given(
    kafka: dict[str, str], protocol: str
) -> None:
    assert KafkaAccess.of(settings(**kafka)).options()["security_protocol"] == protocol


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ({"SASL_PASSWORD": "hunter2"}, "SASL_PASSWORD is set without DRIVETRAIN_KAFKA_SASL_USER"),
        ({"SASL_USERNAME": "cost"}, "SASL_USERNAME is set without DRIVETRAIN_KAFKA_SASL_PASS"),
        (
            {"SECURITY_PROTOCOL": "SSL", "KEY_PATH": "/k"},
            "KEY_PATH is set without DRIVETRAIN_KAFKA_CERTIFICATE_PATH",
        ),
        ({"CA_PATH": "/ca"}, "CA_PATH is set, but .*PROTOCOL is PLAINTEXT, .*write SSL"),
        (LOGIN | {"CA_PATH": "/ca"}, "is SASL_PLAINTEXT, .*without TLS: write SASL_SSL"),
        (LOGIN | {"SECURITY_PROTOCOL": "SSL"}, "has no login: write SASL_SSL, or remove it"),
        ({"SECURITY_PROTOCOL": "SASL_SSL"}, "needs a login: set DRIVETRAIN_KAFKA_SASL_USERNAME"),
        ({"SASL_MECHANISM": "PLAIN"}, "SASL_MECHANISM is set, but"),
        (LOGIN | {"SASL_MECHANISM": "GSSAPI"}, "DRIVETRAIN_KAFKA_SASL_MECHANISM: .*SCRAM-SHA-512"),
    ],
)
def test_a_contradiction_is_refused_with_the_fix(kafka: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refused:
        settings(**kafka)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("CA_PATH", None, "KAFKA_CA_PATH: cannot read .*ca.crt: No such file"),
        ("CA_PATH", b"\x30\x82", "KAFKA_CA_PATH: .*ca.crt is not PEM"),
        ("CA_PATH", b"-----BEGIN CERTIFICATE-----\nnone\n", "CA_PATH: .* holds no CA"),
        ("CERTIFICATE_PATH", b"-----BEGIN CERTIFICATE-----\nnone\n", "no certificate with its key"),
        ("KEY_PATH", None, "KAFKA_KEY_PATH: cannot read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    files: dict[str, str], name: str, content: bytes | None, problem: str
) -> None:
    given = settings(SECURITY_PROTOCOL="SSL", **files)
    if content is None:
        Path(files[name]).unlink()
    else:
        Path(files[name]).write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem):
        KafkaAccess.of(given)


def test_a_key_of_another_certificate_or_with_a_password_is_refused(
    files: dict[str, str], ca: trustme.CA
) -> None:
    given = settings(SECURITY_PROTOCOL="SSL", **files)
    key = load_pem_private_key(Path(files["KEY_PATH"]).read_bytes(), None)
    ca.issue_cert(common_name="hpo").private_key_pem.write_to_path(files["KEY_PATH"])
    with pytest.raises(ConfigurationError, match=r"KEY_PATH: .* is not the key of .*CERTIFICATE"):
        KafkaAccess.of(given)
    Path(files["KEY_PATH"]).write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass"))
    )
    with pytest.raises(ConfigurationError, match=r"KEY_PATH: .* is encrypted: store it without"):
        KafkaAccess.of(given)


def test_the_names_of_brokers_are_verified(files: dict[str, str]) -> None:
    options = KafkaAccess.of(settings(SECURITY_PROTOCOL="SSL", **files)).options()
    assert isinstance(options["ssl_context"], RenewedContext)
    assert KafkaAccess.of(settings(SECURITY_PROTOCOL="SSL", **files)).tls.read().check_hostname


def test_the_password_is_in_no_text_of_the_login() -> None:
    assert "hunter2" not in repr(KafkaAccess.of(settings(**LOGIN)))


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError, TopicAuthorizationFailedError])
def test_a_user_without_rights_is_told_how_it_gets_them(error: type[Exception]) -> None:
    told = explain(error("drivetrain.cost"), OF_SERVICES)
    assert "drivetrain.cost" in told
    assert "python -m services.runtime.access kafka" in told


@pytest.mark.parametrize(
    ("host", "named"), [("broker", "broker:9093"), ("fd00::5", "[fd00::5]:9093")]
)
def test_a_broker_that_cannot_be_reached_is_named_by_its_address(host: str, named: str) -> None:
    assert explain_at(host, 9093, OSError("refused"), OF_SERVICES).startswith(f"{named}: ")
