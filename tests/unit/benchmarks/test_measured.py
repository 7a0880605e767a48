"""The digest of what a benchmark measures changes with its code, and with nothing else."""

from pathlib import Path

import pytest

from benchmarks.measured import digest

PATHS = ("core", "loop.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "cycle.py").write_text("one = 1\n")
    (tmp_path / "loop.py").write_text("two = 2\n")
    (tmp_path / "store.py").write_text("three = 3\n")
    return tmp_path


@pytest.mark.parametrize("path", ["core/cycle.py", "loop.py", "core/new.py", "core/new/query.sql"])
def test_code_that_changes_changes_it(tree: Path, path: str) -> None:
    before = digest(tree, PATHS)
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text("changed = True\n")
    assert digest(tree, PATHS) != before


def test_code_that_goes_or_is_renamed_changes_it(tree: Path) -> None:
    before = digest(tree, PATHS)
    (tree / "core" / "cycle.py").rename(tree / "core" / "round.py")
    renamed = digest(tree, PATHS)
    (tree / "core" / "round.py").unlink()
    assert len({before, renamed, digest(tree, PATHS)}) == 3


@pytest.mark.parametrize("path", ["store.py", "core/README.md", "core/__pycache__/cycle.pyc"])
def test_nothing_else_changes_it(tree: Path, path: str) -> None:
    before = digest(tree, PATHS)
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text("changed\n")
    assert digest(tree, PATHS) == before


def test_a_file_named_twice_counts_once(tree: Path) -> None:
    assert digest(tree, ("core", "core/cycle.py")) == digest(tree, ("core",))
