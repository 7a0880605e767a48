"""The brokers of a platform: one, or three on one machine that replicate everything.

In: the data directory of Kafka and the number wanted. Out: the brokers, each with its own
directory, ports and identity. The file `cluster-id` in the directory says that it holds three;
one broker keeps its data in the directory itself. One cannot become three or three one: the other
number of brokers would neither find the records nor agree on a controller.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.standalone.credentials import Credentials
from services.standalone.files import write_private
from services.standalone.kafka import Broker, KafkaConnection, Member, new_cluster_id

CLUSTER_SIZE = 3
NAMES = ("kafka", "kafka-2", "kafka-3")


class OtherNumberOfBrokers(RuntimeError):
    """The directory holds the records of one broker, and three are wanted, or the reverse."""

    def __init__(self, directory: Path, present: int, wanted: int) -> None:
        super().__init__(
            f"{directory} was made with --brokers {present} and cannot be used with --brokers "
            f"{wanted}. Start with --brokers {present}, or choose another directory with --home."
        )


@dataclass(frozen=True, slots=True)
class Brokers:
    """One broker or three, and how to connect to them."""

    all: tuple[Broker, ...]

    @property
    def connection(self) -> KafkaConnection:
        """The administrator's."""
        return KafkaConnection(self._servers, self.all[0].username, self.all[0].password)

    def connection_of(self, user: str) -> KafkaConnection:
        return KafkaConnection(self._servers, user, self.all[0].users[user])

    @property
    def _servers(self) -> str:
        return ",".join(f"127.0.0.1:{it.advertised_port or it.port}" for it in self.all)


def num_brokers(directory: Path, wanted: int | None) -> int:
    """`wanted`, or what the directory holds, or one. Raises OtherNumberOfBrokers."""
    present = None
    if (directory / "cluster-id").exists():
        present = CLUSTER_SIZE
    elif (directory / "data").exists():
        present = 1
    if present is not None and wanted not in (None, present):
        raise OtherNumberOfBrokers(directory, present, wanted or 1)
    return wanted or present or 1


def brokers_in(
    directory: Path, number: int, ports: Mapping[str, int], credentials: Credentials
) -> Brokers:
    """Those of a platform; `ports` holds `kafka`, `kafka.controller`, `kafka-2` and so on."""
    names = NAMES[:number]
    pairs = [(ports[name], ports[f"{name}.controller"]) for name in names]
    if number == 1:
        return Brokers((Broker.of(directory, *pairs[0], credentials),))
    login = (credentials.kafka_username, credentials.kafka_password, credentials.kafka_users)
    return cluster(directory, pairs, *login)


def cluster(
    directory: Path,
    ports: list[tuple[int, int]],
    username: str,
    password: str,
    users: Mapping[str, str],
) -> Brokers:
    """`ports`: of each broker, for clients and for the other controllers."""
    members = tuple(Member(number, *pair) for number, pair in enumerate(ports, start=1))
    identity = _cluster_id(directory)
    return Brokers(
        tuple(
            Broker(
                directory / f"broker-{it.node_id}",
                it.port,
                it.controller_port,
                username,
                password,
                users,
                it.node_id,
                members,
                identity,
            )
            for it in members
        )
    )


def _cluster_id(directory: Path) -> str:
    """Made at the first start: all three are formatted with it."""
    file = directory / "cluster-id"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, new_cluster_id() + "\n")
    return file.read_text().strip()
