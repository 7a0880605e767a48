"""How much space is left where a part stores its data, and the warning to show.

In: a path. Out: free and total bytes for an ordinary user, and a warning once few are free.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

LOW_BYTES = 2 * 1024**3
LOW_SHARE = 0.1
# A segment of Postgres' log takes 16 MiB at once; below a few of them every write may fail.
FULL_BYTES = 64 * 1024**2


class Space(StrEnum):
    ENOUGH = "enough"
    LOW = "low"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Disk:
    free_bytes: int
    total_bytes: int

    @property
    def space(self) -> Space:
        if self.free_bytes < FULL_BYTES:
            return Space.FULL
        is_low = self.free_bytes < min(LOW_BYTES, LOW_SHARE * self.total_bytes)
        return Space.LOW if is_low else Space.ENOUGH


def read_disk(path: Path) -> Disk:
    found = os.statvfs(path)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def warning(disk: Disk, path: Path) -> str | None:
    """None while there is enough."""
    left = f"{disk.free_bytes / 1e6:,.0f} MB free"
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
