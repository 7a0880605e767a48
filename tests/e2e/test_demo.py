"""The first command in the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_make_run_trains_recovers_and_ends_well(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--exit-when-done", "--home", str(tmp_path / "h")],
        capture_output=True, text=True, timeout=570, check=False,
        env={name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN")},
    )  # fmt: skip
    printed = process.stdout
    assert process.returncode == 0, printed[-4000:] + process.stderr[-4000:]
    assert "kill -9" in printed
    recovered = re.search(r"resumed from checkpoint ckpt_\w+ \(step (\d+)\), (\d+) steps", printed)
    assert recovered, printed
    assert int(recovered[1]) > 0
    accuracy = re.search(r"validation accuracy +([01]\.\d+)", printed)
    assert accuracy, printed
    assert float(accuracy[1]) > 0.97
    assert re.search(r"attempts +2\b", printed)
    assert re.search(r"cost +\$0\.\d+", printed)
