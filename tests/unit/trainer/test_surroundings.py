"""What a run says of its surroundings: what is there, and nothing secret."""

import hashlib
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from drivetrain import environment, surroundings
from drivetrain.messages import Described
from drivetrain.surroundings import Description, describe
from drivetrain_schemas.descriptions import MAX_DATA, MAX_TEXT, Surroundings
from drivetrain_schemas.redaction import without_secrets

LOCAL = environment.read({})


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--lr", "0.1", "data"], ("--lr", "0.1", "data")),
        (["--api-key", "abc", "--lr=1"], ("--api-key", "***", "--lr=1")),
        (["--HF_TOKEN=abc", "password=x"], ("--HF_TOKEN=***", "password=***")),
        (["--use-auth", "--lr", "1"], ("--use-auth", "--lr", "1")),
        (["--use-auth", "--lr=1", "-v"], ("--use-auth", "--lr=1", "-v")),
        (["--token", "-xYz123", "data"], ("--token", "***", "data")),
        (["--token", "--xY-9", "-v"], ("--token", "***", "-v")),
        (["--token", "my-auth-x", "data"], ("--token", "***", "data")),
        (["--pin-auth", "-7", "data"], ("--pin-auth", "***", "data")),
        (["--max-tokens", "512", "--authors=2"], ("--max-tokens", "512", "--authors=2")),
        (["--tokenizer=bpe", "--pad-token-id=0"], ("--tokenizer=bpe", "--pad-token-id=0")),
        (["--hf-token=x", "--authorization=y"], ("--hf-token=***", "--authorization=***")),
        (["s3://user:word@host/data"], ("s3://host/data",)),
        (["s3://user:wo@rd@host/data"], ("s3://host/data",)),
        (["--url=http://h/?a=1&token=abc"], ("--url=http://h/?a=1&token=***",)),
        (["-H", "Authorization: Bearer abc"], ("-H", "Authorization: ***")),
        (["https://auth.h:8080/x"], ("https://auth.h:8080/x",)),
    ],
)
def test_values_of_arguments_that_look_secret_are_left_out(given: Any, shown: Any) -> None:
    assert without_secrets(given) == shown


def test_signed_addresses_are_described_without_their_signature() -> None:
    signed = "https://h/x?v=2&X-Amz-Credential=abc&X-Amz-Signature=abc"
    used = [(signed, None), ("https://h/y?sv=1&sig=abc", None)]
    found = describe(LOCAL, 7, used, {"source": "https://u:abc@h/x"})
    assert [one.uri for one in found.data] == [
        "https://h/x?v=2&X-Amz-Credential=***&X-Amz-Signature=***",
        "https://h/y?sv=1&sig=***",
    ]
    assert found.hyperparameters == {"source": "https://h/x"}


def test_packages_entry_point_and_data_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast", "--token", "abc"])
    monkeypatch.setenv("MY_PASSWORD", "nobody-may-see")
    file = tmp_path / "data.csv"
    file.write_bytes(b"1,2\n")
    used = [(str(file), "v1"), ("s3://u:word@bucket/x", None), ("nowhere.csv", None)]
    found = describe(
        LOCAL, 7, used, {"lr": 0.1, "api_key": "abc", "eps": math.inf, "layers": [1, 2]}
    )
    assert (found.entry_point, found.arguments) == ("train.py", ("--fast", "--token", "***"))
    assert (found.seed, found.python) == (7, sys.version.split()[0])
    names = [one.name for one in found.packages]
    assert "pydantic" in names
    assert names == sorted(names, key=str.lower)
    parsed = Surroundings.model_validate_json(found.model_dump_json())
    assert parsed.hyperparameters == {
        "api_key": "***",
        "eps": "inf",
        "layers": "[1, 2]",
        "lr": 0.1,
    }
    digest = hashlib.sha256(b"1,2\n").hexdigest()
    checksums = [(one.uri, one.checksum) for one in found.data]
    assert checksums == [
        (str(file), f"sha256:{digest}"),
        ("s3://bucket/x", None),
        ("nowhere.csv", None),
    ]
    assert "nobody-may-see" not in found.model_dump_json()


def test_packages_are_named_as_in_their_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    install("a.dist-info/METADATA", "Metadata-Version: 2.1\nVersion: 1.2 \nName: A.b\n\nName: c\n")
    install("d.egg-info/PKG-INFO", "name: d\r\nversion: 2\r\n\r\nVersion: 3\r\n")
    install("e.egg-info", "Name: e\nVersion: 4\n")  # as distutils wrote it
    install("broken.dist-info/METADATA", "Name: broken\nVersion:\n\nVersion: 5\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    packages = describe(LOCAL, 0, [], {}).packages
    assert [(one.name, one.version) for one in packages] == [("A.b", "1.2"), ("d", "2"), ("e", "4")]


def test_a_directory_is_known_by_the_names_and_sizes_in_it(tmp_path: Path) -> None:
    def checksum() -> str | None:
        return describe(LOCAL, 0, [(str(tmp_path), None)], {}).data[0].checksum

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("one")
    first = checksum()
    assert first == checksum()
    assert (first or "").startswith("listing:")
    (tmp_path / "a" / "b").write_text("three")
    assert checksum() != first


def test_each_use_of_data_is_a_further_description_and_they_are_bounded() -> None:
    sent: list[Described] = []
    description = Description(LOCAL, 0, {}, sent.append)
    assert description.use_data("first") is None
    description.begin()
    description.close(20)
    for number in range(MAX_DATA - 1):
        assert description.use_data(f"data-{number}", "v1") is None
        description.close(20)
    assert description.use_data("first") is None
    assert "a run records 32 uses" in (description.use_data("one more") or "")
    numbers = [one.number for one in sent]
    assert numbers == list(range(1, MAX_DATA + 1))
    last = Surroundings.model_validate_json(bytes(sent[-1].surroundings))
    assert len(last.data) == MAX_DATA


def test_a_version_that_is_too_long_is_shortened_and_said() -> None:
    """The whole description was lost with it."""
    sent: list[Described] = []
    description = Description(LOCAL, 0, {}, sent.append)
    said = description.use_data("data.csv", "v" * 4000)
    assert said == (
        "of the version of data.csv only the first 300 of 4,000 characters are recorded: "
        "give a shorter one, such as its SHA-256"
    )
    assert description.use_data("numbered", 3) is None
    description.begin()
    description.close(20)
    data = Surroundings.model_validate_json(bytes(sent[0].surroundings)).data
    assert [one.version for one in data] == ["v" * MAX_TEXT, "3"]


def test_a_pipe_or_a_device_is_named_and_not_read(tmp_path: Path) -> None:
    """Opening a pipe waits for its writer, who may never come."""
    os.mkfifo(tmp_path / "pipe")
    used = [(str(tmp_path / "pipe"), None), ("/dev/zero", None), ("a\0b", None)]
    assert [one.checksum for one in describe(LOCAL, 0, used, {}).data] == [None] * 3


@pytest.mark.parametrize("uri", ["s3://[x", "http://h]/", "//[data", "a\0b", "\udcff.csv"])
def test_data_that_is_no_address_and_no_path_is_named_without_a_checksum(uri: str) -> None:
    found = describe(LOCAL, 0, [(uri, None)], {})
    assert found.data[0].checksum is None
    assert found.model_dump_json()


def test_what_cannot_be_described_does_not_fail_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "describe", lambda *_: 1 // 0)
    sent: list[Described] = []
    description = Description(LOCAL, 0, {}, sent.append)
    description.begin()
    description.close(20)
    assert sent == []
