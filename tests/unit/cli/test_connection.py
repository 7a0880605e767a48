"""Which platform is used: the environment's, else this machine's; never a mixture."""

import json
from pathlib import Path

import pytest

from drivetrain.cli.connection import Connection, find_connection
from drivetrain.cli.errors import Unreachable


def test_the_environment_has_precedence(tmp_path: Path) -> None:
    write(tmp_path, {"gateway_url": "http://127.0.0.1:1", "token": "local"})
    found = find_connection(
        {
            "DRIVETRAIN_URL": "https://train.example.com/",
            "DRIVETRAIN_TOKEN": "secret",
            "DRIVETRAIN_HOME": str(tmp_path),
        }
    )
    assert found == Connection("https://train.example.com", "secret")
    assert "secret" not in repr(found)


def test_without_settings_this_machines_platform_is_used(tmp_path: Path) -> None:
    write(tmp_path, {"gateway_url": "http://127.0.0.1:1", "token": "local"})
    found = find_connection({"DRIVETRAIN_HOME": str(tmp_path)})
    assert found == Connection("http://127.0.0.1:1", "local")


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"DRIVETRAIN_URL": "http://x"}, "DRIVETRAIN_TOKEN is not set"),
        ({"DRIVETRAIN_TOKEN": "x"}, "DRIVETRAIN_URL is not set"),
        ({"DRIVETRAIN_URL": "x:80", "DRIVETRAIN_TOKEN": "x"}, "is not an address"),
        ({"DRIVETRAIN_URL": "http://x:y", "DRIVETRAIN_TOKEN": "x"}, "is not an address"),
        ({"DRIVETRAIN_URL": "http://x", "DRIVETRAIN_TOKEN": "a\nb"}, "invalid characters"),
        ({}, "no platform found: "),
    ],
)
def test_a_wrong_setting_is_reported(
    tmp_path: Path, environment: dict[str, str], want: str
) -> None:
    with pytest.raises(Unreachable, match=want) as error:
        find_connection({"DRIVETRAIN_HOME": str(tmp_path), **environment})
    assert error.value.fix
    assert error.value.exit_code == 3


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"gateway_url": "http://x"}', "\0"])
def test_a_broken_file_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "connection.json").write_text(content)
    with pytest.raises(Unreachable, match="has no address of a platform"):
        find_connection({"DRIVETRAIN_HOME": str(tmp_path)})


def write(home: Path, document: dict[str, str]) -> None:
    (home / "connection.json").write_text(json.dumps(document))
