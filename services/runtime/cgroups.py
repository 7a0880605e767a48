"""Groups of processes whose memory and number the kernel limits: cgroups, of either version.

In: a name and limits. Out: directories, for memory and for processes, which are one in the second
version. A group is made below this process's own, so that the limits of both hold; in the second
version beside it, because a group that has processes can limit none below it.
"""

import os
from contextlib import suppress
from pathlib import Path

# Of memory, and of swap: by itself in the second version, of both together in the first.
_SECOND_LIMITS = ("memory.max", "memory.swap.max")
_FIRST_LIMITS = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def why_none() -> str:
    """Why this process can make no group; empty where it can."""
    try:
        places(_OWN.read_text(), _ROOT)
    except OSError as error:
        return str(error)
    return ""


def make(name: str, memory_bytes: int | None, max_tasks: int) -> tuple[str, ...]:
    """`max_tasks`: processes and threads. None are made where the kernel refuses."""
    with suppress(OSError):
        memory, pids = groups = [each / name for each in places(_OWN.read_text(), _ROOT)]
        for group in groups:
            group.mkdir(exist_ok=True)
        (pids / "pids.max").write_text(str(max_tasks))
        if memory_bytes is not None:
            is_second = memory == pids
            limit, swap = _SECOND_LIMITS if is_second else _FIRST_LIMITS
            (memory / limit).write_text(str(memory_bytes))
            with suppress(OSError):  # a kernel that does not count what is swapped
                (memory / swap).write_text("0" if is_second else str(memory_bytes))
        return tuple(map(str, groups))
    return ()


def remove(name: str) -> None:
    """With those below, which its programs have made; unless a process is left in one."""
    with suppress(OSError):
        for place in set(places(_OWN.read_text(), _ROOT)):
            for group in sorted((place / name).glob("**/"), reverse=True):
                group.rmdir()


def places(own: str, root: Path) -> list[Path]:
    """Where groups may be made. `own`: the content of /proc/PID/cgroup. Raises OSError."""
    lines = [line.split(":", 2) for line in own.splitlines()]
    paths = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    return [
        _in_first(root / controller, paths[controller])
        if controller in paths
        else _in_second(root, paths.get("", ""), controller)
        for controller in ("memory", "pids")
    ]


def _in_first(top: Path, own: str) -> Path:
    return _writable(top / own if (top / own).is_dir() else top)


def _in_second(top: Path, own: str, controller: str) -> Path:
    group = top / own
    # A container may see its own group as the top, which has none beside it.
    place = _writable(group.parent if group.is_dir() and group != top else top)
    if controller not in (place / "cgroup.subtree_control").read_text():
        raise OSError(f"{place} has no control of {controller}")
    return place


def _writable(place: Path) -> Path:
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{place} is not writable")
    return place
