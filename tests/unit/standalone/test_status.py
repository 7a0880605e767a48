"""The status says what the platform cannot hold its pods to."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.runtime import cgroups
from services.standalone.home import Home
from services.standalone.options import Options
from services.standalone.status import read_status, status


def test_a_machine_that_cannot_limit_pods_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path / "nothing mounted")
    content = read_status(Home(tmp_path), datetime.now(UTC))
    assert content["why_pods_have_no_limits"].endswith(" is not writable")
    status(Options("status", tmp_path, tmp_path))
    assert "Memory and processes of pods have no limit: " in capsys.readouterr().out
