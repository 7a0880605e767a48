"""File systems of their own for faults: small, without inodes, read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, options: str) -> Iterator[None]:
    """A tmpfs with these mount options on a new directory; skips where none can be mounted."""
    directory.mkdir()
    if os.geteuid() or not _mount(directory, options):
        pytest.skip("no file system can be mounted: this needs root and the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def remount(directory: Path, options: str) -> None:
    assert _mount(directory, f"remount,{options}")


def _mount(directory: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
