"""The status says what the platform cannot hold its pods to, and outlives a damaged record."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.runtime import cgroups
from services.standalone.home import Home, locked
from services.standalone.identity import identify
from services.standalone.options import Options
from services.standalone.status import EXIT_NOT_READY, EXIT_NOT_RUNNING, read_status, status


def test_a_machine_that_cannot_limit_pods_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path / "nothing mounted")
    content = read_status(Home(tmp_path), datetime.now(UTC))
    assert content["why_pods_have_no_limits"].endswith(" is not writable")
    status(Options("status", tmp_path, tmp_path))
    assert "Memory and processes of pods have no limit: " in capsys.readouterr().out


SINCE = "2026-01-02T03:04:05+00:00"


def row(**fields: object) -> dict[str, object]:
    """Of a ready part whose process is this one."""
    me = identify(os.getpid())
    assert me is not None
    return {"name": "kafka", "state": "ready", "port": 9092, "restarts": 0, **asdict(me), **fields}


def shown_as(
    home: Home, output: str, capsys: pytest.CaptureFixture[str], content: object
) -> tuple[int, str]:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    home.state.write_bytes(text)
    code = status(Options("status", home.root, home.root, output=output))
    return code, capsys.readouterr().out


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    "damage",
    [b"", b"\xff", b"[]", b"null", b"1", b"[" * 100_000, {"parts": 1}, {"parts": [1, None, {}]}],
)
def test_a_damaged_record_shows_no_parts(
    tmp_path: Path, output: str, damage: object, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    code, _ = shown_as(home, output, capsys, damage)
    assert code == EXIT_NOT_RUNNING
    with locked(home):
        code, _ = shown_as(home, output, capsys, damage)
    assert code == EXIT_NOT_READY
    assert read_status(home, datetime.now(UTC))["parts"] == []


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"start_ticks": None}, "restarting"),
        ({"pid": True}, "restarting"),
        ({"pid": 10**300}, "restarting"),
        ({"state": None}, "unknown"),
        ({"state": "[/red]"}, "[/red]"),
        ({"state": "not ready", "since": 5}, "not ready"),
        ({"state": "not ready", "since": "yesterday"}, "not ready"),
    ],
)
def test_a_damaged_row_is_shown_without_what_is_unknown(
    tmp_path: Path,
    output: str,
    fields: dict[str, object],
    state: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with locked(Home(tmp_path)):
        content = {"parts": [row(**fields)]}
        code, shown = shown_as(Home(tmp_path), output, capsys, content)
    assert code == EXIT_NOT_READY
    assert state in shown


@pytest.mark.parametrize("started", [None, 5, "soon", SINCE.removesuffix("+00:00")])
def test_a_damaged_time_or_port_leaves_a_ready_part_ready(tmp_path: Path, started: object) -> None:
    home = Home(tmp_path)
    home.state.write_text(json.dumps({"parts": [row(started_at=started, port=[])]}))
    with locked(home):
        (part,) = read_status(home, datetime.now(UTC))["parts"]
    assert part["state"] == "ready"
    assert part["pid"] == os.getpid()
    assert part["uptime_s"] is part["port"] is None


def test_a_whole_row_is_shown_as_it_was_recorded(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.state.write_text(json.dumps({"parts": [row(started_at=SINCE, last_exit="exit code 1")]}))
    with locked(home):
        (part,) = read_status(home, datetime.fromisoformat("2026-01-02T03:05:05+00:00"))["parts"]
    assert part == {
        "name": "kafka",
        "state": "ready",
        "restarts": 0,
        "port": 9092,
        "last_exit": "exit code 1",
        "started_at": SINCE,
        "pid": os.getpid(),
        "uptime_s": 60,
    }
