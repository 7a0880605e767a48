"""The broker's configuration file, and how many brokers a directory holds."""

from pathlib import Path

import pytest

from services.standalone.kafka import Broker, server_properties
from services.standalone.kafka_cluster import OtherNumberOfBrokers, cluster, num_brokers


def properties(directory: str) -> dict[str, str]:
    broker = Broker(Path(directory), 20001, 20002, "drivetrain", "secret")
    lines = server_properties(broker, broker.data).splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize(
    ("directory", "want"),
    [
        ("/tmp/plain", "/tmp/plain/data"),
        ("/tmp/two words", "/tmp/two words/data"),
        ("/tmp/ü", r"/tmp/\u00fc/data"),
        ("/tmp/\N{STEAM LOCOMOTIVE}", r"/tmp/\ud83d\ude82/data"),
        ("/tmp/back\\slash", r"/tmp/back\\slash/data"),
    ],
)
def test_any_path_is_written_as_java_reads_it(directory: str, want: str) -> None:
    assert properties(directory)["log.dirs"] == want


def test_every_listener_is_on_loopback_and_asks_for_credentials() -> None:
    found = properties("/tmp/plain")
    listeners = found["listeners"].split(",")
    assert [listener.partition("://")[2] for listener in listeners] == [
        "127.0.0.1:20001",
        "127.0.0.1:20002",
    ]
    protocols = dict(pair.split(":") for pair in found["listener.security.protocol.map"].split(","))
    assert {protocols[listener.partition("://")[0]] for listener in listeners} == {"SASL_PLAINTEXT"}
    assert found["auto.create.topics.enable"] == "false"


def test_three_brokers_differ_in_identity_and_agree_on_the_quorum(tmp_path: Path) -> None:
    pairs = [(20001, 20002), (20003, 20004), (20005, 20006)]
    brokers = cluster(tmp_path / "kafka", pairs, "drivetrain", "secret", {}).all
    written = [server_properties(broker, broker.data).splitlines() for broker in brokers]
    found = [dict(line.split("=", 1) for line in lines) for lines in written]
    assert [it["node.id"] for it in found] == ["1", "2", "3"]
    assert len({it["log.dirs"] for it in found}) == len({it["listeners"] for it in found}) == 3
    voters = "1@127.0.0.1:20002,2@127.0.0.1:20004,3@127.0.0.1:20006"
    assert {it["controller.quorum.voters"] for it in found} == {voters}
    assert len({broker.cluster_id for broker in brokers}) == 1
    again = cluster(tmp_path / "kafka", pairs, "drivetrain", "secret", {}).all
    assert again == brokers
    for it in found:
        factors = {value for name, value in it.items() if name.endswith("replication.factor")}
        assert factors == {"3"}
        in_sync = ("min.insync.replicas", "transaction.state.log.min.isr")
        assert [it[name] for name in in_sync] == ["2", "2"]


def test_a_directory_keeps_its_number_of_brokers(tmp_path: Path) -> None:
    assert num_brokers(tmp_path, None) == 1
    assert num_brokers(tmp_path, 3) == 3
    (tmp_path / "one" / "data").mkdir(parents=True)
    assert num_brokers(tmp_path / "one", None) == 1
    with pytest.raises(OtherNumberOfBrokers, match=r"with --brokers 1 .* another directory"):
        num_brokers(tmp_path / "one", 3)
    cluster(tmp_path / "three", [(1, 2), (3, 4), (5, 6)], "drivetrain", "secret", {})
    assert num_brokers(tmp_path / "three", None) == 3
    with pytest.raises(OtherNumberOfBrokers, match="with --brokers 3"):
        num_brokers(tmp_path / "three", 1)
