"""Which process listens on a local TCP port, as far as this user may see."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    pid: int
    command: str


def listener_on(port: int, proc: Path = Path("/proc")) -> Listener | None:
    """None where nothing listens, or where the process belongs to another user."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return None
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        # Ended meanwhile, or another user's.
        with contextlib.suppress(OSError):
            if any(_target(link) in sockets for link in (entry / "fd").iterdir()):
                return Listener(int(entry.name), (entry / "comm").read_text().strip())
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
