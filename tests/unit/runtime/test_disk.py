"""When a disk counts as almost full, and as full."""

from pathlib import Path

import pytest

from services.runtime.disk import Disk, Space, read_disk, warning

MB, GB = 1024**2, 1024**3


@pytest.mark.parametrize(
    ("free_bytes", "total_bytes", "want"),
    [
        (100 * GB, 1000 * GB, Space.ENOUGH),
        (2 * GB, 1000 * GB, Space.ENOUGH),
        (2 * GB - 1, 1000 * GB, Space.LOW),
        (500 * MB, 1 * GB, Space.ENOUGH),
        (100 * MB, 1 * GB, Space.LOW),
        (64 * MB, 1000 * GB, Space.LOW),
        (64 * MB - 1, 1000 * GB, Space.FULL),
        (0, 1 * GB, Space.FULL),
    ],
)
def test_a_disk_is_low_by_bytes_or_share_and_full_by_bytes(
    free_bytes: int, total_bytes: int, want: Space
) -> None:
    disk = Disk(free_bytes, total_bytes)
    assert disk.space is want
    assert (warning(disk, Path("/data")) is None) == (want is Space.ENOUGH)


@pytest.mark.parametrize(
    ("free_files", "total_files", "want"),
    [
        (0, 0, Space.ENOUGH),  # it has no limit
        (20_000, 1_000_000, Space.ENOUGH),
        (9_999, 1_000_000, Space.LOW),
        (99, 1_000_000, Space.FULL),
    ],
)
def test_a_disk_is_low_and_full_by_files_too(
    free_files: int, total_files: int, want: Space
) -> None:
    disk = Disk(100 * GB, 1000 * GB, free_files, total_files)
    assert disk.space is want
    assert (warning(disk, Path("/data")) is None) == (want is Space.ENOUGH)


def test_the_disk_of_a_directory_is_read(tmp_path: Path) -> None:
    disk = read_disk(tmp_path)
    assert 0 <= disk.free_bytes <= disk.total_bytes
