"""What must not be in the tree."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    found = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in found.stdout.splitlines()]


def test_the_lock_file_names_no_address_and_hashes_everything() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert not [line for line in lines if "://" in line and not line.lstrip().startswith("#")]
    names = [number for number, line in enumerate(lines) if line[:1].isalnum()]
    assert len(names) > 50
    for number in names:
        assert "--hash=sha256:" in lines[number + 1], lines[number]


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils.py", "helpers.py", "common.py", "misc.py"}
    assert not [path for path in tracked("*.py") if path.name in drawers]


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    for path in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert f"({path.name})" in index, f"{path.name} is not in docs/decisions/README.md"


def test_the_files_that_count_costs_are_those_of_the_table() -> None:
    listed = set(re.findall(r"`(costs/\w+/\w+\.py)`", (ROOT / "tests/README.md").read_text()))
    there = {
        f"costs/{path.parent.name}/{path.name}" for path in ROOT.glob("tests/costs/*/test_*.py")
    }
    assert listed == there


def test_no_row_is_found_by_a_comparison_that_an_index_cannot_answer() -> None:
    """`clock_timestamp()` may change from row to row, so a statement that compares a column with it
    reads every row; `statement_timestamp()` does not."""
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked("services/*.py")
        for match in re.finditer(r"[<>]=?\s*clock_timestamp\(\)", path.read_text())
    ]
    assert not found
