"""Packing a directory of code: the same files give the same bytes, so code is stored once.

Left out: `.git`, `__pycache__`, `.venv` anywhere, `runs` at the top, and what `.drivetrainignore`
lists (one shell pattern per line; a pattern with a slash is matched against the whole path, else
against each name; a slash at its end means directories only). Links to files are packed as the
files they point to. A file that cannot be packed is an error with its name, never silently left
out.
"""

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from drivetrain.cli.errors import InvalidInput

IGNORE_FILE = ".drivetrainignore"
# The gateway's bounds on an archive of code.
MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_PACKED_BYTES = 64 * 1024 * 1024
IGNORE_FIX = f"name what the job does not need in {IGNORE_FILE}"

_ALWAYS_IGNORED = (".git/", "__pycache__/", ".venv/", "/runs/")


@dataclass(frozen=True, slots=True)
class Package:
    content: bytes
    sha256: str
    num_files: int


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: str
    is_whole_path: bool
    only_directories: bool

    def matches(self, path: str, is_directory: bool) -> bool:
        if self.only_directories and not is_directory:
            return False
        return fnmatchcase(path if self.is_whole_path else path.rpartition("/")[2], self.pattern)


def pack(directory: Path) -> Package:
    """A gzipped tar of the directory's files. Raises InvalidInput."""
    if not directory.is_dir():
        raise InvalidInput(
            f"code: {directory} is not a directory", fix="name the directory of the code"
        )
    rules = [_rule(line) for line in (*_ALWAYS_IGNORED, *_ignore_lines(directory))]
    buffer = io.BytesIO()
    num_files = num_bytes = 0
    # The gzip header contains neither a time nor a file name.
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in _files(directory, "", rules):
            content = _read(path, MAX_UNPACKED_BYTES - num_bytes)
            num_files, num_bytes = num_files + 1, num_bytes + len(content)
            if num_files > MAX_FILES:
                raise InvalidInput(
                    f"{directory} holds more than {MAX_FILES:,} files", fix=IGNORE_FIX
                )
            archive.addfile(_member(name, path, len(content)), io.BytesIO(content))
    if not num_files:
        raise InvalidInput(f"{directory} has no files")
    packed = buffer.getvalue()
    if len(packed) > MAX_PACKED_BYTES:
        raise InvalidInput(
            f"{directory} packs to {len(packed):,} bytes (at most {MAX_PACKED_BYTES:,})",
            fix=f"{IGNORE_FIX}; put data into the object store",
        )
    return Package(packed, hashlib.sha256(packed).hexdigest(), num_files)


def _ignore_lines(directory: Path) -> list[str]:
    try:
        lines = (directory / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {directory / IGNORE_FILE}: {error}") from error
    kept = [line.strip() for line in lines]
    for number, line in enumerate(kept, start=1):
        if line.startswith("!"):
            place = f"{directory / IGNORE_FILE}:{number}"
            raise InvalidInput(
                f"{place}: {line}: exceptions with ! are not supported", fix="remove it"
            )
    return [line for line in kept if line and not line.startswith("#")]


def _rule(line: str) -> _Rule:
    only_directories = line.endswith("/")
    pattern = line.rstrip("/")
    return _Rule(pattern.lstrip("/"), "/" in pattern, only_directories)


def _files(directory: Path, prefix: str, rules: list[_Rule]) -> Iterator[tuple[str, Path]]:
    """Every file that is not ignored, in the order of the names."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        raise InvalidInput(f"cannot read {directory}: {error.strerror}") from error
    for entry in entries:
        name, path = prefix + entry.name, Path(entry.path)
        is_directory = entry.is_dir()
        if any(rule.matches(name, is_directory) for rule in rules):
            continue
        if not entry.name.isprintable() or "\\" in entry.name:
            raise InvalidInput(f"{path!s:.200}: this name cannot be packed", fix="rename the file")
        if is_directory and entry.is_symlink():
            raise InvalidInput(f"{path} is a link to a directory", fix=IGNORE_FIX)
        if is_directory:
            yield from _files(path, f"{name}/", rules)
        else:
            yield name, path


def _read(path: Path, limit: int) -> bytes:
    try:
        # Checked first: reading a pipe would block forever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidInput(f"{path} is neither a file nor a directory", fix=IGNORE_FIX)
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", fix=IGNORE_FIX) from error
    if len(content) > limit:
        raise InvalidInput(
            f"the code has more than {MAX_UNPACKED_BYTES:,} bytes at {path}",
            fix=f"{IGNORE_FIX}; put data into the object store",
        )
    return content


def _member(name: str, path: Path, size: int) -> tarfile.TarInfo:
    """Only whether the file is executable; no owner and no times."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
    return member
