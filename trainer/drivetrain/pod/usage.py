"""What a pod's processes have used so far, read from the kernel, and how much that is per second.

In a container of its own the pod's cgroup has the figures. Elsewhere they are summed over the
process tree: what an ended process used is in the figures of the parent that waited for it. Memory
is what the processes hold for themselves and, once, the largest that one of them shares.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drivetrain.pod import processes
from drivetrain_schemas.system_series import PREFIX

_CGROUP = Path("/sys/fs/cgroup")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The fields of /proc/PID/stat after the name: of the process, and of its children that ended.
_CPU_FIELDS = slice(11, 15)


@dataclass(frozen=True, slots=True)
class Usage:
    """`at` by the monotonic clock; counters since the start, None where the kernel has none."""

    at: float
    cpu_seconds: float
    memory_bytes: int
    read_bytes: int | None = None
    written_bytes: int | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None


def figures(before: Usage, now: Usage, has_own_network: bool) -> dict[str, float]:
    """The series between two readings, by name. A counter that fell, as an ended process took its
    figures along, counts as 0.
    """
    seconds = now.at - before.at
    if seconds <= 0:
        return {}
    network = "network" if has_own_network else "host_network"
    rates = {
        "disk_read_bytes_per_s": (before.read_bytes, now.read_bytes),
        "disk_written_bytes_per_s": (before.written_bytes, now.written_bytes),
        f"{network}_received_bytes_per_s": (before.received_bytes, now.received_bytes),
        f"{network}_sent_bytes_per_s": (before.sent_bytes, now.sent_bytes),
    }
    cpu = max(0.0, now.cpu_seconds - before.cpu_seconds)
    found = {"cpu_percent": 100 * cpu / seconds, "memory_bytes": float(now.memory_bytes)}
    for name, (old, new) in rates.items():
        if old is not None and new is not None:
            found[name] = max(0, new - old) / seconds
    return {PREFIX + name: value for name, value in found.items()}


def read(has_own_cgroup: bool) -> Usage:
    """Of this process and all below it."""
    received, sent = _network()
    if has_own_cgroup:
        with suppress(OSError, KeyError, ValueError):  # of the first version, or not mounted
            cpu_seconds, memory_bytes, disk = _of_cgroup()
            return Usage(time.monotonic(), cpu_seconds, memory_bytes, *disk, received, sent)
    return _of_processes(received, sent)


def _of_cgroup() -> tuple[float, int, tuple[int, int]]:
    cpu = _pairs((_CGROUP / "cpu.stat").read_text())
    memory = int((_CGROUP / "memory.current").read_text())
    # Files that the kernel has in memory, and drops first, are not what the program needs.
    cached = _pairs((_CGROUP / "memory.stat").read_text())["inactive_file"]
    read_bytes = written_bytes = 0
    for word in (_CGROUP / "io.stat").read_text().split():
        name, _, number = word.partition("=")
        read_bytes += int(number) if name == "rbytes" else 0
        written_bytes += int(number) if name == "wbytes" else 0
    return cpu["usage_usec"] / 1e6, max(0, memory - cached), (read_bytes, written_bytes)


def _pairs(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in map(str.split, text.splitlines())}


def _of_processes(received: int | None, sent: int | None) -> Usage:
    ticks = own_pages = shared_pages = 0
    disk: tuple[int, int] | None = None
    for pid in (os.getpid(), *processes.descendants(os.getpid())):
        with suppress(OSError, ValueError, IndexError):  # gone meanwhile, or another user's
            ticks += sum(map(int, processes.stat_fields(str(pid))[_CPU_FIELDS]))
            _, resident, shared, *_ = _words(f"/proc/{pid}/statm")
            own_pages += int(resident) - int(shared)
            shared_pages = max(shared_pages, int(shared))
            io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            read_so_far, written_so_far = disk or (0, 0)
            disk = read_so_far + int(io["read_bytes"]), written_so_far + int(io["write_bytes"])
    return Usage(
        at=time.monotonic(),
        cpu_seconds=ticks / _TICKS_PER_SECOND,
        memory_bytes=(own_pages + shared_pages) * _PAGE_BYTES,
        read_bytes=None if disk is None else disk[0],
        written_bytes=None if disk is None else disk[1],
        received_bytes=received,
        sent_bytes=sent,
    )


def _network() -> tuple[int | None, int | None]:
    """Bytes received and sent by all interfaces but the loopback."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
        return network_totals(lines)
    except (OSError, ValueError, IndexError):
        return None, None


def network_totals(lines: Iterable[str]) -> tuple[int, int]:
    """Of the lines of /proc/net/dev that follow its two headings."""
    received = sent = 0
    for line in lines:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            numbers = counters.split()
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    return received, sent


def _words(path: str) -> list[str]:
    return Path(path).read_text().split()
