"""Every way to connect to a secured Kafka, and the words for every way to fail."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from aiokafka.client import AIOKafkaClient

from drivetrain_schemas.kafka_security import SaslMechanism
from services.runtime.bus import BusUnavailable, OutRecord
from services.runtime.errors import KafkaUnavailable
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource
from services.runtime.tls import TlsFiles
from services.runtime.topics import create_topics
from tests.certificates import written
from tests.secured_kafka import SecuredKafka


async def connect(access: KafkaAccess) -> None:
    client = AIOKafkaClient(**access.options())
    try:
        await client.bootstrap()
        assert client.cluster.brokers()
    finally:
        await client.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_over_tls_connects(secured: SecuredKafka, mechanism: SaslMechanism) -> None:
    await connect(secured.scram("cost", sasl_mechanism=mechanism))


async def test_a_client_certificate_connects(secured: SecuredKafka) -> None:
    await connect(secured.mtls("cost"))


def with_other_ca(secured: SecuredKafka, directory: Path) -> KafkaAccess:
    trustme.CA().cert_pem.write_to_path(directory / "other.crt")
    return secured.scram("cost", tls=TlsFiles(directory / "other.crt"))


def signed_by_another(secured: SecuredKafka, directory: Path) -> KafkaAccess:
    files = written(directory, "cost", trustme.CA(), "cost", common_name="cost")
    return replace(secured.mtls("cost"), tls=TlsFiles(secured.directory / "ca.crt", *files))


CA = "DRIVETRAIN_KAFKA_CA_PATH"
SERVERS = "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS"
PROTOCOL = "DRIVETRAIN_KAFKA_SECURITY_PROTOCOL"
MECHANISM = "DRIVETRAIN_KAFKA_SASL_MECHANISM"
CERTIFICATE = "DRIVETRAIN_KAFKA_CERTIFICATE_PATH"
PASSWORD = "DRIVETRAIN_KAFKA_SASL_PASSWORD"
WRONG: dict[str, tuple[Callable[[SecuredKafka, Path], KafkaAccess], str]] = {
    "another CA": (with_other_ca, f"not signed by a known CA .* {CA}"),
    "an expired certificate": (
        lambda it, _: replace(it.mtls("cost"), bootstrap_servers=it.servers["expired"]),
        "the broker's certificate has expired: renew it",
    ),
    "another host's certificate": (
        lambda it, _: replace(it.mtls("cost"), bootstrap_servers=it.servers["misnamed"]),
        f"certificate is for another name .* {SERVERS}",
    ),
    "no client certificate": (
        lambda it, _: replace(it.mtls("cost"), tls=TlsFiles(it.directory / "ca.crt")),
        f"requires a client certificate .* set {CERTIFICATE}",
    ),
    "a client certificate of another CA": (
        signed_by_another,
        f"requires a client certificate .* signed by a CA that it trusts: set {CERTIFICATE}",
    ),
    "an unknown user": (
        lambda it, _: it.scram("nobody"),
        f"refuses the login: check DRIVETRAIN_KAFKA_SASL_USERNAME and {PASSWORD}",
    ),
    "a wrong password": (
        lambda it, _: it.scram("cost", password="wrong"),
        f"refuses the login: check .*{PASSWORD}",
    ),
    "a mechanism that is off": (
        lambda it, _: it.scram("cost", sasl_mechanism="PLAIN"),
        f"does not take the mechanism of {MECHANISM}",
    ),
    "no TLS where there is some": (
        lambda it, _: it.scram("cost", security_protocol="SASL_PLAINTEXT"),
        PROTOCOL,
    ),
    "TLS where there is none": (
        lambda it, _: it.scram("cost", bootstrap_servers=it.admin.bootstrap_servers),
        f"closed the connection: is {PROTOCOL} that of the port in {SERVERS}",
    ),
    "no login where one is needed": (
        lambda it, _: it.scram(None, security_protocol="SSL"),
        PROTOCOL,
    ),
    "a login where there is none": (
        lambda it, _: it.scram("cost", bootstrap_servers=it.servers["mtls"]),
        f"requires a client certificate .* set {CERTIFICATE}",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_wrong_is_said_with_the_fix(
    secured: SecuredKafka, tmp_path: Path, wrong: str
) -> None:
    make, problem = WRONG[wrong]
    access = make(secured, tmp_path)
    source = KafkaSource(access, "group", ["topic"], member="member", max_records=1)
    with pytest.raises(KafkaUnavailable, match=problem):
        await source.start()
    publisher = KafkaPublisher(access, "tests")
    with pytest.raises(BusUnavailable, match=problem):
        await publisher.publish([OutRecord("topic", b"k", b"v")])


async def test_a_renewed_certificate_counts_without_a_restart(
    secured: SecuredKafka, topic_prefix: str, tmp_path: Path
) -> None:
    """The same client, refused with the old files, connects once they are replaced."""
    await create_topics(secured.admin, topic_prefix)
    files = written(tmp_path, "client", trustme.CA(), "cost", common_name="drivetrain")
    tls = TlsFiles(secured.directory / "ca.crt", *files)
    publisher = KafkaPublisher(replace(secured.mtls("cost"), tls=tls), "tests")
    record = OutRecord(f"{topic_prefix}events.charges", b"k", b"v")
    with pytest.raises(BusUnavailable, match="requires a client certificate"):
        await publisher.publish([record])
    written(tmp_path, "client", secured.ca, "cost", common_name="drivetrain")
    await publisher.publish([record])
    await publisher.close()
