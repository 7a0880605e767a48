"""The scripts in the guides run as they are written there, and continue exactly after a stop."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
# Asks the script to stop, as the platform does, after a number of its steps.
STOPPING = """
import os, runpy, signal, sys
import drivetrain
log = drivetrain.Run.log
def log_and_stop(run, *values, **named):
    log(run, *values, **named)
    if run.step == 21:
        os.kill(os.getpid(), signal.SIGTERM)
drivetrain.Run.log = log_and_stop
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def scripts(guide: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (GUIDES / guide).read_text(), re.DOTALL)


def run(directory: Path, *arguments: str) -> int:
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    assert ran.returncode in (0, 75), ran.stderr
    return ran.returncode


def in_directory(directory: Path, script: str) -> Path:
    directory.mkdir()
    (directory / "train.py").write_text(script)
    (directory / "stopping.py").write_text(STOPPING)
    return directory


@pytest.mark.parametrize("guide", ["port-your-script.md", "own-loop.md"])
@pytest.mark.heavy
def test_a_script_of_a_guide_continues_exactly(tmp_path: Path, guide: str) -> None:
    script = scripts(guide)[-1]
    whole = in_directory(tmp_path / "whole", script)
    stopped = in_directory(tmp_path / "stopped", script)
    assert run(whole, "train.py") == 0
    assert run(stopped, "stopping.py", "train.py") == 75
    assert not (stopped / "model.pt").exists()
    assert run(stopped, "train.py") == 0
    want, found = (torch.load(place / "model.pt") for place in (whole, stopped))
    assert want.keys() == found.keys()
    assert all(torch.equal(want[name], found[name]) for name in want)


@pytest.mark.heavy
def test_the_script_before_it_is_ported_runs_too(tmp_path: Path) -> None:
    before, after = scripts("port-your-script.md")
    assert run(in_directory(tmp_path / "before", before), "train.py") == 0
    marked = [line for line in after.splitlines() if re.search(r"# [1-5]$", line)]
    assert len(marked) == 6, "every line that the guide explains is marked"
