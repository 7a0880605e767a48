"""Whatever a pod's programs leave on disk is measured and removed, and never ends the scheduler."""

import os
from pathlib import Path

import pytest

from services.scheduler.launchers.trees import disk_bytes, remove_tree


def nest(root: Path, depth: int) -> None:
    """A file at the bottom of so many directories."""
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=here)
        below = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, b"x" * 5000)
    os.close(file)
    os.close(here)


@pytest.mark.parametrize(
    "depth",
    [
        pytest.param(1, id="flat"),
        pytest.param(1500, id="call stack"),
        pytest.param(5000, id="path length", marks=pytest.mark.heavy),
    ],
)
def test_directories_of_any_depth_are_measured_and_removed(tmp_path: Path, depth: int):
    root = tmp_path / "job"
    nest(root, depth)
    (root / "b" / "c").mkdir(parents=True)
    (root / "b" / "c" / "file").write_bytes(b"x" * 5000)

    one = (root / "b" / "c" / "file").stat().st_blocks * 512
    assert disk_bytes(root) == 2 * one > 0
    remove_tree(root)

    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"x" * 100_000)
    root = tmp_path / "job"
    root.mkdir()
    (root / "link").symlink_to(victim)
    (tmp_path / "other").symlink_to(victim)

    assert disk_bytes(root) < 100_000
    assert disk_bytes(tmp_path / "other") == 0
    remove_tree(root)
    remove_tree(tmp_path / "other")
    remove_tree(tmp_path / "missing")

    assert [entry.name for entry in tmp_path.iterdir()] == ["victim"]
    assert (victim / "file").exists()
