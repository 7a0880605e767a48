"""Packing a directory of code: the same files give the same bytes, so code is stored once.

The files are measured first: what is too large is refused before anything is compressed, with the
largest parts named. What is left out, and by which rule, is decided in `ignoring` and reported.
Links are packed as what they point to; a link to a lot of data is left out and reported.
"""

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drivetrain.cli import amounts
from drivetrain.cli.errors import FieldProblem, InvalidInput
from drivetrain.cli.ignoring import IGNORE_FILE, Rules, read_rules

# The gateway's bounds on an archive of code.
MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_PACKED_BYTES = 64 * 1024 * 1024
# What one link may bring in.
MAX_LINKED_BYTES = 64 * 1024 * 1024
COMPRESSION_LEVEL = 6

IGNORE_FIX = f"name what the job does not need in {IGNORE_FILE} (the syntax of .gitignore)"
DATA_FIX = f"{IGNORE_FIX}; the job can read data by its full path, or from the object store"

NO_TARGET = "a link to nothing"
LOOP = "a link to a directory that it is in"
NOT_A_FILE = "neither a file nor a directory"
LARGE_LINK = (
    f"a link to more than {MAX_LINKED_BYTES // 2**20} MiB; "
    "the job can read that by its full path, on nodes that have it"
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A path below the code's directory, and why it is not sent."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Package:
    content: bytes
    sha256: str
    num_files: int
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    path: Path
    num_bytes: int
    is_executable: bool


def pack(directory: Path) -> Package:
    """A gzipped tar of the directory's files. Raises InvalidInput."""
    if not directory.is_dir():
        raise InvalidInput(
            f"code: {directory} is not a directory", fix="name the directory of the code"
        )
    walk = _Walk()
    files = _measured(directory, walk.files(directory, "", read_rules(directory), ()))
    if not files:
        raise InvalidInput(f"{directory} has no files to send", problems=_as_problems(walk))
    content = _compressed(directory, files)
    digest = hashlib.sha256(content).hexdigest()
    return Package(content, digest, len(files), tuple(walk.left_out))


class _Walk:
    """Lists files, and notes what it leaves out and why."""

    def __init__(self) -> None:
        self.left_out: list[LeftOut] = []

    def files(
        self, directory: Path, prefix: str, rules: Rules, within: tuple[str, ...]
    ) -> Iterator[_File]:
        """Every file to send, in the order of the names; `within`: the directories around it."""
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            raise InvalidInput(f"cannot read {directory}: {error.strerror}") from error
        within = (*within, os.path.realpath(directory))
        for entry in entries:
            path, name = Path(entry.path), prefix + entry.name
            is_directory = entry.is_dir()
            shown = f"{name}/" if is_directory else name
            reason = rules.reason_against(shown, path)
            if reason is not None:
                self._leave_out(shown, reason)
                continue
            if not entry.name.isprintable() or "\\" in entry.name:
                raise InvalidInput(
                    f"{path!s:.200}: this name cannot be packed", fix="rename the file"
                )
            if is_directory:
                inner = rules.below(path, shown)
                found = self.files(path, shown, inner, within)
                yield from (
                    self._of_link(path, shown, found, within) if entry.is_symlink() else found
                )
            else:
                yield from self._file(path, name, is_link=entry.is_symlink())

    def _of_link(
        self, path: Path, shown: str, found: Iterable[_File], within: tuple[str, ...]
    ) -> Sequence[_File]:
        """The files behind a link to a directory, or none where they are too many."""
        if os.path.realpath(path) in within:
            self._leave_out(shown, LOOP)
            return ()
        num_noted = len(self.left_out)
        files: list[_File] = []
        num_bytes = 0
        for file in found:
            files.append(file)
            num_bytes += file.num_bytes
            if num_bytes > MAX_LINKED_BYTES or len(files) > MAX_FILES:
                del self.left_out[num_noted:]
                self._leave_out(shown, LARGE_LINK)
                return ()
        return files

    def _file(self, path: Path, name: str, *, is_link: bool) -> Iterator[_File]:
        try:
            facts = path.stat()
        except FileNotFoundError:
            self._leave_out(name, NO_TARGET)
            return
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}", fix=IGNORE_FIX) from error
        if not stat.S_ISREG(facts.st_mode):
            self._leave_out(name, NOT_A_FILE)
        elif is_link and facts.st_size > MAX_LINKED_BYTES:
            self._leave_out(name, LARGE_LINK)
        else:
            yield _File(name, path, facts.st_size, os.access(path, os.X_OK))

    def _leave_out(self, path: str, reason: str) -> None:
        if reason:
            self.left_out.append(LeftOut(path, reason))


def _measured(directory: Path, found: Iterator[_File]) -> list[_File]:
    """All files, or a refusal as soon as they are too many or too large."""
    files: list[_File] = []
    num_bytes = 0
    for file in found:
        files.append(file)
        num_bytes += file.num_bytes
        if len(files) > MAX_FILES:
            by_part = Counter(_part(file) for file in files)
            largest = [(part, f"{count:,} files or more") for part, count in by_part.most_common(3)]
            raise _too_large(directory, f"holds more than {MAX_FILES:,} files", largest)
    if num_bytes > MAX_UNPACKED_BYTES:
        message = f"holds {num_bytes:,} bytes (at most {MAX_UNPACKED_BYTES:,})"
        raise _too_large(directory, message, _largest(files))
    return files


def _compressed(directory: Path, files: Sequence[_File]) -> bytes:
    bounded = _Bounded()
    try:
        # The gzip header contains neither a time nor a file name.
        with (
            gzip.GzipFile(
                fileobj=bounded, mode="wb", filename="", mtime=0, compresslevel=COMPRESSION_LEVEL
            ) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in files:
                _add(archive, file)
    except _Full:
        message = f"packs to more than {MAX_PACKED_BYTES:,} bytes"
        raise _too_large(directory, message, _largest(files)) from None
    return bounded.getvalue()


class _Full(Exception):
    """The archive has reached its bound."""


class _Bounded(io.BytesIO):
    """A buffer that takes at most MAX_PACKED_BYTES."""

    is_full = False

    def write(self, data: "memoryview | bytes", /) -> int:  # type: ignore[override]
        if self.is_full:
            return len(data)  # what closing the archive still writes, after the refusal
        if self.tell() + len(data) > MAX_PACKED_BYTES:
            self.is_full = True
            raise _Full
        return super().write(data)


def _add(archive: tarfile.TarFile, file: _File) -> None:
    """Only whether the file is executable; no owner and no times."""
    member = tarfile.TarInfo(file.name)
    member.size = file.num_bytes
    member.mode = 0o755 if file.is_executable else 0o644
    try:
        with file.path.open("rb") as content:
            archive.addfile(member, content)
    except OSError as error:
        detail = error.strerror or "it changed meanwhile"
        raise InvalidInput(f"cannot read {file.path}: {detail}", fix=IGNORE_FIX) from error


def _too_large(directory: Path, message: str, largest: Sequence[tuple[str, str]]) -> InvalidInput:
    problems = [FieldProblem(part, f"has {amount}") for part, amount in largest]
    return InvalidInput(f"the code in {directory} {message}", fix=DATA_FIX, problems=problems)


def _largest(files: Sequence[_File]) -> list[tuple[str, str]]:
    by_part: Counter[str] = Counter()
    for file in files:
        by_part[_part(file)] += file.num_bytes
    return [(part, amounts.size(num_bytes)) for part, num_bytes in by_part.most_common(3)]


def _part(file: _File) -> str:
    """The entry at the top that the file is in."""
    first, slash, _ = file.name.partition("/")
    return first + slash


def _as_problems(walk: _Walk) -> list[FieldProblem]:
    return [FieldProblem(one.path, f"is left out: {one.reason}") for one in walk.left_out[:10]]
