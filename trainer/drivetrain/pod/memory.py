"""The machine's memory as far as this process may use it, and whether it ran out."""

from contextlib import suppress
from pathlib import Path

_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def limit_bytes() -> int:
    """The memory of the machine or of this container, whichever is less."""
    limits = [_number("/proc/meminfo", "MemTotal:") * 1024]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such group, or "max"
            limits.append(int(Path(path).read_text()))
    return min(limits)


def num_killed() -> int:
    """How many processes the kernel has killed for lack of memory since it started."""
    return _number("/proc/vmstat", "oom_kill")


def _number(path: str, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in Path(path).read_text().splitlines():
            words = line.split()
            if words[0] == name:
                return int(words[1])
    return 0
