"""The data directory: every path in it, and the lock that only one platform can hold.

In: the path (option, `DRIVETRAIN_HOME`, else `~/.drivetrain`). Out: named paths, mode 0700, and a
lock held for as long as the process lives (an advisory file lock, so `kill -9` frees it).
A second start gets `HomeHeld`, with the process that holds it and since when.
"""

import fcntl
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from services.standalone.identity import Pid, ProcessIdentity, identify

# What is in the directory before the credentials are.
_FIRST_NAMES = frozenset({"lock", "objects", "pods", "logs", "cache"})


class NotOurs(RuntimeError):
    """The directory has other contents: it must not become private to the platform."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(
            f"{root} is not a data directory of a platform: it contains {name!r}. "
            "Name a new or an empty directory with --home."
        )


class HomeHeld(RuntimeError):
    """Another platform runs on this data directory."""

    def __init__(self, root: Path, pid: int | None, since: str) -> None:
        self.pid = pid
        super().__init__(
            f"{root} is held by the platform with pid {pid}, running since {since}. "
            f"Stop it with `python -m services.standalone stop --home {shlex.quote(str(root))}`, "
            "or start this one with another --home."
        )


@dataclass(frozen=True, slots=True)
class Holder:
    identity: ProcessIdentity
    since: str


class _LockFile(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    pid: Pid
    start_ticks: int
    boot_id: str
    since: str


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    @property
    def credentials(self) -> Path:
        return self.root / "credentials.json"

    @property
    def connection(self) -> Path:
        return self.root / "connection.json"

    @property
    def kafka(self) -> Path:
        return self.root / "kafka"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def store(self) -> Path:
        """The record of the object store's first start."""
        return self.root / "store.json"

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def assets(self) -> Path:
        return self.root / "cache" / "assets"

    def create(self) -> None:
        """Raises `NotOurs` before anything is changed in a directory with other things in it."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._refuse_foreign()
        # An empty directory may be readable by others; its future contents must not be.
        self.root.chmod(0o700)
        for path in (self.pods, self.logs, self.assets):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _refuse_foreign(self) -> None:
        if self.credentials.exists():
            return
        names = sorted(path.name for path in self.root.iterdir())
        # Files that were half written at a kill begin with a dot and our own name.
        own = (*_FIRST_NAMES, *(name for name in names if name.startswith(".credentials.json.")))
        foreign = [name for name in names if name not in own]
        if foreign:
            raise NotOurs(self.root, foreign[0])


def default_home() -> Path:
    return Path(os.environ.get("DRIVETRAIN_HOME") or Path.home() / ".drivetrain").resolve()


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Hold the data directory; raises `HomeHeld` at once if another process does."""
    descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _parse(file.read())
            raise HomeHeld(
                home.root,
                holder.identity.pid if holder else None,
                holder.since if holder else "just now",
            ) from None
        identity = identify(os.getpid())
        assert identity is not None
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({**asdict(identity), "since": since}, file)
        file.flush()
        yield
        file.truncate(0)


def holder_of(home: Home) -> Holder | None:
    """The process that holds the data directory now, without locking it."""
    try:
        with home.lock.open("r+", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _parse(file.read())
    except FileNotFoundError:
        return None
    return None


def _parse(text: str) -> Holder | None:
    """None for a damaged lock, and for one that its holder has not written yet."""
    try:
        it = _LockFile.model_validate_json(text)
    except ValidationError:
        return None
    return Holder(ProcessIdentity(it.pid, it.start_ticks, it.boot_id), it.since)
