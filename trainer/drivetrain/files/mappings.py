"""Which files processes write to through memory.

Such a write changes the times of a file at most once until the kernel has written the page back,
which takes half a minute, so they do not tell of the next one.
"""

import os
from contextlib import suppress
from functools import cached_property


class Mappings:
    """The files that a process of this user has mapped to write to them, as of the first call."""

    def has(self, inode: int) -> bool:
        return inode in self._inodes

    @cached_property
    def _inodes(self) -> frozenset[int]:
        found: set[int] = set()
        for process in os.listdir("/proc"):
            if process.isdigit():
                with suppress(OSError), open(f"/proc/{process}/maps", "rb") as lines:
                    # Address, permissions, offset, device, inode, path.
                    found.update(int(line.split(None, 5)[4]) for line in lines if b" rw-s " in line)
        return frozenset(found)
