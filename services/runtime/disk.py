"""How much space is left where a part stores its data, and the warning to show.

In: a path. Out: free and total bytes and files for an ordinary user, and a warning once few are
free. A directory may be on a disk of its own, so those below a path are looked at too.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

LOW_BYTES = 2 * 1024**3
LOW_SHARE = 0.1
# A segment of Postgres' log takes 16 MiB at once; below a few of them every write may fail.
FULL_BYTES = 64 * 1024**2
LOW_FILES = 10_000
FULL_FILES = 100


class Space(StrEnum):
    ENOUGH = "enough"
    LOW = "low"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Disk:
    """`total_files`: how many files there may be at all; 0 where the disk has no limit."""

    free_bytes: int
    total_bytes: int
    free_files: int = 0
    total_files: int = 0

    @property
    def space(self) -> Space:
        if self.free_bytes < FULL_BYTES or self._has_fewer_files(FULL_FILES):
            return Space.FULL
        is_low = self.free_bytes < min(LOW_BYTES, LOW_SHARE * self.total_bytes)
        return Space.LOW if is_low or self._has_fewer_files(LOW_FILES) else Space.ENOUGH

    def _has_fewer_files(self, least: int) -> bool:
        return self.total_files > 0 and self.free_files < min(least, LOW_SHARE * self.total_files)


def read_disk(path: Path) -> Disk:
    found = os.statvfs(path)
    return Disk(
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
        found.f_favail,
        found.f_files,
    )


def fullest(root: Path) -> tuple[Path, Disk]:
    """Of the disks of this directory and of those in it, or linked there, that with least space."""
    # Not each.is_dir(), which raises for a link to a disk that cannot be reached.
    others = (each for each in sorted(root.iterdir()) if os.path.isdir(each))
    disks = [(path, read_disk(path)) for path in (root, *others)]
    order = [Space.FULL, Space.LOW, Space.ENOUGH]
    return min(disks, key=lambda each: order.index(each[1].space))


def warning(disk: Disk, path: Path) -> str | None:
    """None while there is enough."""
    left = f"{disk.free_bytes / 1e6:,.0f} MB free"
    if disk.total_files:
        left += f", {disk.free_files:,} files"
    if disk.space is Space.FULL:
        return (
            f"The disk of {path} is full ({left}): nothing can be stored. Free some space; "
            "the platform then continues by itself, and what it acknowledged is kept."
        )
    if disk.space is Space.LOW:
        return (
            f"The disk of {path} is almost full ({left}). "
            f"Below {FULL_BYTES / 1e6:.0f} MB nothing can be stored."
        )
    return None
