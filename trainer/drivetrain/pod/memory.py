"""The machine's memory as far as this process may use it, whether it ran out, and the groups of a
pod (cgroups), whose processes the kernel limits. A pod's shim is in none: it says how they ended.
"""

import resource
from collections.abc import Sequence
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


def enter(groups: Sequence[str]) -> None:
    """This process, and all that it will start."""
    # The memory of a model would fill the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError):
        score = Path("/proc/self/oom_score_adj")
        # Where the machine is out of memory it ends before the platform. A container has its own.
        if int(score.read_text()) == 0:
            score.write_text("500")
    for group in groups:
        Path(group, "cgroup.procs").write_text("0")


def close(groups: Sequence[str]) -> None:
    """No process in them can start another, so that killing them comes to an end."""
    for group in groups:
        with suppress(OSError):
            Path(group, "pids.max").write_text("0")


def remove(groups: Sequence[str]) -> None:
    """Once no process is in them, nor in what its programs have made below."""
    for group in groups:
        for each in sorted(Path(group).glob("**/"), reverse=True):
            with suppress(OSError):
                each.rmdir()


def has_killed(groups: Sequence[str]) -> bool:
    """The kernel has killed a process in them that used too much memory."""
    files = ("memory.events", "memory.oom_control")  # of the second version, and of the first
    return any(_number(f"{group}/{file}", "oom_kill") for group in groups for file in files)


def _number(path: str, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in Path(path).read_text().splitlines():
            words = line.split()
            if words[0] == name:
                return int(words[1])
    return 0
