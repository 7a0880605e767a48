"""Runs one container: prepares its namespaces and files, starts its command, records its end.

`python -I -S container_process.py CONFIG_FILE`: one per container, so that containers go on while
the kubelet is away. Writes `started.json` and `exit.json` beside the config file. When the test's
own process ends (the pipe `session_fd` closes), the container is killed.

Standard library only: it starts in 20 ms. mount(2) and unshare(2) are called by ctypes.
"""

import ctypes
import json
import os
import select
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
PR_SET_PDEATHSIG = 1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OWN = {"proc", "dev", "tmp"}  # of each container


def main(config_file: Path) -> None:
    config = json.loads(config_file.read_text())
    _enter_namespaces(config["uid"], config["gid"])
    root = Path(config["root"])
    _make_root(root, config)
    log = os.open(config["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    failure, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(failure)
        _become_container(root, config, log, told)
    os.close(told)
    message = _read_all(failure)
    record = {"pid": child, "supervisor": os.getpid(), "at": _now()}
    _write(config_file.with_name("started.json"), record)
    code = _wait(child, config["session_fd"])
    end = {"code": 128 if message else code, "error": message, "at": _now()}
    _write(config_file.with_name("exit.json"), end)


def _enter_namespaces(uid: int, gid: int) -> None:
    """Inside, we are `uid` and own what we own outside; nothing else can be another user's."""
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC
    _checked(LIBC.unshare(flags), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")
    _mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)


def _make_root(root: Path, config: dict[str, Any]) -> None:
    """The machine's files, read-only; then /dev, /tmp and the volumes."""
    mounts = sorted((_resolved(target), source, ro) for source, target, ro in config["mounts"])
    opened = {Path("/")}
    _open_directory(Path("/"), root)
    for target, _, _ in mounts:
        _make_mount_point(root, target, opened)
    _set_read_only(root)
    _make_devices(root / "dev")
    tmp = Path(config["tmp"])
    image_paths = [Path(path) for path in config["image_paths"]]
    for target, source, read_only in [(Path("/tmp"), str(tmp), False), *mounts]:
        point = root / target.relative_to("/")
        if not point.exists():  # inside another volume, or in /dev or /tmp
            _make_point_like(Path(source), point)
        # What the machine has below this path and would be in an image stays visible.
        hidden = [path for path in image_paths if path.is_relative_to(target)]
        for path in hidden:
            _make_point_like(path, Path(source) / path.relative_to(target))
        _bind(Path(source), point, read_only=read_only)
        for path in hidden:
            _bind(path, root / path.relative_to("/"), read_only=True)
    if config["read_only_tmp"]:
        _set_read_only(root / "tmp", recursive=False)


def _resolved(target: str) -> Path:
    """Where it is when links (such as /var/run) are followed."""
    path = Path(target)
    return Path(os.path.realpath(path.parent)) / path.name


def _open_directory(source: Path, target: Path) -> None:
    """An own directory with the same content, in which entries can be added."""
    entries = [(entry.name, entry.is_symlink()) for entry in os.scandir(source)]
    _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name, is_link in entries:
        original, point = source / name, target / name
        if source == Path("/") and name in OWN:
            point.mkdir()
        elif is_link:
            point.symlink_to(os.readlink(original))
        elif original.is_dir() or original.is_file():
            _make_point_like(original, point)
            _mount(str(original), point, flags=MS_BIND | MS_REC)


def _make_mount_point(root: Path, target: Path, opened: set[Path]) -> None:
    """Let `target` exist: the deepest directory of the machine above it is opened for it."""
    if target.parts[1] in OWN or (root / target.relative_to("/")).exists():
        return
    existing = next(path for path in target.parents if (root / path.relative_to("/")).exists())
    if existing.exists() and existing not in opened:
        _open_directory(existing, root / existing.relative_to("/"))
        opened.add(existing)
    (root / target.relative_to("/")).mkdir(parents=True)


def _make_point_like(source: Path, point: Path) -> None:
    if source.is_dir():
        point.mkdir(parents=True, exist_ok=True)
    else:
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()


def _make_devices(directory: Path) -> None:
    _mount("tmpfs", directory, "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        (directory / name).touch()
        _mount(f"/dev/{name}", directory / name, flags=MS_BIND)
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        (directory / name).symlink_to(f"/proc/self/fd{target}")
    (directory / "shm").mkdir(mode=0o1777)


def _become_container(root: Path, config: dict[str, Any], log: int, told: int) -> NoReturn:
    """The first process of the PID namespace: becomes the command, or reports why it cannot."""
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        name = config["hostname"].encode()
        _checked(LIBC.sethostname(name, len(name)), "sethostname")
        os.chroot(root)
        os.chdir(config["cwd"])
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        os.closerange(3, told)
        os.closerange(told + 1, 256)
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Python had changed them
        os.execvpe(config["argv"][0], config["argv"], config["env"])
    except OSError as error:
        os.write(told, f"{config['argv'][0]}: {error.strerror}: {error.filename}".encode())
    finally:
        os._exit(128)


def _wait(child: int, session: int) -> int:
    """The exit code as a container's: 128 + n after signal n."""
    waiting = select.poll()
    ended = os.pidfd_open(child)
    waiting.register(ended, select.POLLIN)
    waiting.register(session, 0)  # hang-up only
    if ended not in {descriptor for descriptor, _ in waiting.poll()}:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _bind(source: Path, target: Path, *, read_only: bool) -> None:
    _mount(str(source), target, flags=MS_BIND | MS_REC)
    if read_only:
        _set_read_only(target)


def _set_read_only(target: Path, *, recursive: bool = True) -> None:
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    how = AT_RECURSIVE if recursive else 0
    arguments = (AT_FDCWD, os.fsencode(target), how, attributes, ctypes.sizeof(attributes))
    _checked(LIBC.syscall(SYS_MOUNT_SETATTR, *arguments), f"mount_setattr {target}")


def _mount(source: str, target: Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = LIBC.mount(
        source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _checked(result, f"mount {source} at {target}")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _read_all(descriptor: int) -> str:
    with os.fdopen(descriptor) as opened:
        return opened.read()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content))
    partial.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
