"""One real broker with certificates and SCRAM users: a listener for each way to connect.

The administrator connects as to any embedded broker. Certificates are made by the caller's CA.
"""

import subprocess
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trustme

from services.runtime.kafka_access import KafkaAccess
from services.runtime.tls import TlsFiles
from services.standalone import jars, kafka
from services.standalone.embedded import supervised
from services.standalone.ports import free_port
from tests.certificates import EXPIRED, written

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
# Security protocol of each listener, and which certificate it shows.
LISTENERS = {
    "scram": ("SASL_SSL", "valid"),
    "mtls": ("SSL", "valid"),
    "expired": ("SSL", "expired"),
    "misnamed": ("SSL", "misnamed"),
}


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """`servers`: the address of each listener. `ca`: the broker's CA, which signs clients too."""

    servers: Mapping[str, str]
    admin: KafkaAccess
    ca: trustme.CA
    directory: Path
    passwords: Mapping[str, str]

    def scram(self, user: str, **changes: object) -> KafkaAccess:
        """The login of a user over TLS."""
        access = KafkaAccess(
            self.servers["scram"],
            user,
            self.passwords.get(user, "unknown"),
            "SASL_SSL",
            "SCRAM-SHA-512",
            TlsFiles(self.directory / "ca.crt"),
        )
        return replace(access, **changes)

    def mtls(self, user: str) -> KafkaAccess:
        """A client certificate of this user."""
        files = written(self.directory, user, self.ca, user, common_name=user)
        tls = TlsFiles(self.directory / "ca.crt", *files)
        return KafkaAccess(self.servers["mtls"], security_protocol="SSL", tls=tls)


@asynccontextmanager
async def running_secured_kafka(
    directory: Path, users: Sequence[str]
) -> AsyncIterator[SecuredKafka]:
    """Each user has a SCRAM password, and may have a certificate with its name."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(directory / "ca.crt")
    written(directory, "valid", ca, "localhost", "127.0.0.1")
    written(directory, "expired", ca, "localhost", "127.0.0.1", **EXPIRED)
    written(directory, "misnamed", ca, "kafka.example")
    passwords = {user: f"secret-of-{user}" for user in users}
    ports = {name: free_port() for name in LISTENERS}
    broker = kafka.Broker(directory / "broker", free_port(), free_port(), "drivetrain", "admins")
    classpath = tuple(jars.fetch_jars(jars.locked_jars("kafka"), jars.default_cache()))
    properties = broker.directory / "server.properties"
    plain = kafka.spec(broker, classpath, directory / "log")

    def prepare() -> None:
        broker.directory.mkdir(exist_ok=True)
        (broker.directory / "log4j2.properties").write_text(kafka.LOG4J)
        secured = _properties(broker, ports, directory)
        if not broker.data.exists():
            properties.write_text(kafka.server_properties(broker, broker.data) + secured)
            _format(classpath, properties, passwords)
        kafka.prepare(broker, classpath)
        with properties.open("a") as lines:
            lines.write(secured)  # the last value of a name counts

    async with supervised(replace(plain, prepare=prepare)):
        yield SecuredKafka(
            {name: f"localhost:{port}" for name, port in ports.items()},
            KafkaAccess(f"127.0.0.1:{broker.port}", broker.username, broker.password),
            ca,
            directory,
            passwords,
        )


def _properties(broker: kafka.Broker, ports: Mapping[str, int], directory: Path) -> str:
    named = {name.upper(): port for name, port in ports.items()}
    listeners = [f"CLIENT://127.0.0.1:{broker.port}"]
    listeners += [f"{name}://127.0.0.1:{port}" for name, port in named.items()]
    advertised = [f"CLIENT://127.0.0.1:{broker.port}"]
    advertised += [f"{name}://localhost:{port}" for name, port in named.items()]
    protocols = [f"{name.upper()}:{protocol}" for name, (protocol, _) in LISTENERS.items()]
    lines = {
        "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{broker.controller_port}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:SASL_PLAINTEXT", "CLIENT:SASL_PLAINTEXT", *protocols]
        ),
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "listener.name.scram.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.mtls.ssl.client.auth": "required",
    }
    for mechanism in MECHANISMS:
        lines[f"listener.name.scram.{mechanism.lower()}.sasl.jaas.config"] = SCRAM_MODULE
    for name, (_, certificate) in LISTENERS.items():
        keystore = directory / f"{certificate}.pem"
        keystore.write_bytes(
            (directory / f"{certificate}.key").read_bytes()
            + (directory / f"{certificate}.crt").read_bytes()
        )
        prefix = f"listener.name.{name}.ssl"
        lines |= {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": str(keystore),
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": str(directory / "ca.crt"),
        }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _format(classpath: Sequence[Path], properties: Path, passwords: Mapping[str, str]) -> None:
    users = [
        f"{mechanism}=[name={user},password={password}]"
        for user, password in passwords.items()
        for mechanism in MECHANISMS
    ]
    tool = [
        *kafka._java(classpath, kafka.FORMAT_FLAGS),
        f"-Dlog4j2.configurationFile={properties.parent / 'log4j2.properties'}",
        *("kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", str(properties)),
        *(part for user in users for part in ("--add-scram", user)),
    ]
    subprocess.run(tool, check=True, capture_output=True, env=kafka._environment())
