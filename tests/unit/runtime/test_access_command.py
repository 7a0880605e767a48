"""The operators' command for roles: what it prints, and what it refuses before it connects."""

from pathlib import Path

import pytest

from drivetrain_schemas.topics import SERVICES
from services.runtime import logs
from services.runtime.access.__main__ import main

DSN = "DRIVETRAIN_POSTGRES_DSN"


@pytest.fixture(autouse=True)
def _without_its_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would go to this test's stderr for ever."""
    monkeypatch.setattr(logs, "configure", lambda service: None)


def test_the_printed_sql_makes_every_role_and_holds_no_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["postgres", "--print"]) == 0
    sql = capsys.readouterr().out
    for name in SERVICES:
        assert f'create schema if not exists "{name}" authorization "{name}"' in sql
    assert " password '" not in sql


@pytest.mark.parametrize("command", ["kafka", "postgres"])
def test_a_part_without_an_address_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DSN, raising=False)
    assert main([command]) == 2
    assert "it is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "cannot be read as JSON"),
        ('["hunter2"]', 'write {"scheduler": "..."}'),
        ('{"cost": 7}', 'write {"scheduler": "..."}'),
        ('{"costs": "hunter2"}', "'costs' is no service; those are scheduler"),
    ],
)
def test_a_wrong_file_of_passwords_is_refused_and_not_shown(
    content: str,
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(DSN, "postgresql://nowhere/drivetrain")
    path = tmp_path / "passwords.json"
    path.write_text(content)
    assert main(["postgres", "--passwords", str(path)]) == 2
    told = capsys.readouterr().err
    assert problem in told
    assert "hunter2" not in told
