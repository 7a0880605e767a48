"""The broker's configuration file."""

from pathlib import Path

import pytest

from services.standalone.kafka import Broker, server_properties


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
