"""Laying out the working directory of an attempt: the job's code, then the job's files over it.

The directory is created again for each attempt, so what a program finds depends on what was saved
and not on which machine it runs. Nothing is written through a link. If a blob is missing or
damaged, the log names its file, which is left out, and the run goes on.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from drivetrain.files import scanning
from drivetrain.files.record import Record, write_record
from drivetrain.files.scanning import Signature
from drivetrain.storage import Storage
from drivetrain_schemas.job_files import (
    PART_BYTES,
    FileList,
    JobFile,
    JobLink,
    blob_key,
    stays_inside,
)


@dataclass(frozen=True, slots=True)
class Source:
    """Files that are put back: the name of the checkpoint or list, and the list itself.

    Not `is_own`: they are another job's, and its blobs are no part of what this one saves.
    """

    name: str
    files: FileList
    is_own: bool = True


class FileDamaged(Exception):
    """The stored content of a file is missing or is another one."""


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Wait for the other pods of this attempt that share the directory."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _nothing() -> None:
    return


def lay_out(
    code: Path,
    work: Path,
    record: Path,
    find: Callable[[], tuple[Source, Storage] | None],
    on_part: Callable[[], None] = _nothing,
) -> None:
    """Make the working directory and record what is in it. Raises OSError, StorageError.

    `find` is asked for the files to put back, and where their blobs are; `on_part` is called when
    a part of one has arrived.
    """
    _move_away(work, record.parent)
    shutil.copytree(code, work, symlinks=True)
    found = scanning.scan(work)
    restored: dict[str, tuple[Signature, JobFile]] = {}
    lost: dict[str, str] = {}
    sought = find()
    name = None
    if sought is not None:
        source, storage = sought
        restored = put_back(work, source.files, storage, lost, on_part)
        name = source.name
        if not source.is_own:
            restored, name = {}, None
    write_record(
        record,
        Record(
            source=name,
            code={path: seen.signature for path, seen in found.files.items()},
            code_links=found.links,
            restored=restored,
            lost=lost,
        ),
    )


def put_back(
    work: Path,
    files: FileList,
    storage: Storage,
    lost: dict[str, str],
    on_part: Callable[[], None] = _nothing,
) -> dict[str, tuple[Signature, JobFile]]:
    """Write the files of a list over what is there. Returns those that were written.

    A file that cannot be read from the store is named in `lost`, with the reason. Raises OSError,
    StorageError.
    """
    for path in files.removed:
        with suppress(OSError):
            if _is_below_real_directories(work, path):
                (work / path).unlink()
    written: dict[str, tuple[Signature, JobFile]] = {}
    blobs = _Blobs(storage, on_part)
    # Files of one blob after each other, so that it is read once.
    for file in sorted(files.files, key=lambda file: file.packed.blob if file.packed else ""):
        try:
            status = _write_file(work, file, blobs)
        except FileDamaged as error:
            lost[file.path] = f"it is not put back: {error}"
            continue
        written[file.path] = (scanning.see(file.path, status).signature, file)
    for link in files.links:
        _write_link(work, link)
    return written


def put_back_code(
    work: Path, code: Path, record: Record, except_for: Collection[str]
) -> dict[str, Signature]:
    """Make all but these paths as in the code. Returns the files of the code, as they are now.

    Raises OSError.
    """
    found = scanning.scan(work)
    for path in [*found.files, *found.links]:
        if path not in except_for and path not in record.code and path not in record.code_links:
            (work / path).unlink(missing_ok=True)
    files = dict(record.code)
    for path, signature in record.code.items():
        seen = found.files.get(path)
        if path not in except_for and (seen is None or seen.signature != signature):
            _make_parents(work, path)
            _clear(work / path)
            shutil.copy2(code / path, work / path)
            files[path] = scanning.see(path, (work / path).lstat()).signature
    for path, target in record.code_links.items():
        if path not in except_for and found.links.get(path) != target:
            _write_link(work, JobLink(path=path, target=target))
    return files


def read_part(storage: Storage, name: str) -> bytes:
    """The content of a blob, verified. Raises FileDamaged, StorageError."""
    data = storage.get(blob_key(name), PART_BYTES)
    if data is None:
        raise FileDamaged(f"the store does not hold its part {name}")
    if hashlib.sha256(data).hexdigest() != name[:64]:
        raise FileDamaged(f"its part {name} has another SHA-256")
    return data


class _Blobs:
    """The content of files. The last blob of several files is kept."""

    def __init__(self, storage: Storage, on_part: Callable[[], None]) -> None:
        self._storage = storage
        self._on_part = on_part
        self._kept = ("", b"")

    def pieces(self, file: JobFile) -> Iterator[bytes]:
        """Raises FileDamaged, StorageError."""
        if file.packed is None:
            for name in file.parts:
                yield self._read(name)
            return
        if self._kept[0] != file.packed.blob:
            self._kept = (file.packed.blob, b"")  # one that is damaged is read once
            self._kept = (file.packed.blob, self._read(file.packed.blob))
        yield self._kept[1][file.packed.offset : file.packed.offset + file.size_bytes]

    def _read(self, name: str) -> bytes:
        data = read_part(self._storage, name)
        self._on_part()
        return data


def _write_file(work: Path, file: JobFile, blobs: _Blobs) -> os.stat_result:
    target = work / file.path
    _make_parents(work, file.path)
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        whole = hashlib.sha256()
        with partial.open("xb") as output:
            for data in blobs.pieces(file):
                whole.update(data)
                output.write(data)
        if whole.hexdigest() != file.sha256:
            raise FileDamaged("what is stored has another SHA-256")
        partial.chmod(file.mode)
        os.utime(partial, ns=(file.modified_at_ns, file.modified_at_ns))
        _clear(target)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return target.lstat()


def _write_link(work: Path, link: JobLink) -> None:
    if not stays_inside(link.path, link.target):
        return
    _make_parents(work, link.path)
    _clear(work / link.path)
    (work / link.path).symlink_to(link.target)


def _clear(target: Path) -> None:
    """Nothing is at this path."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _make_parents(work: Path, path: str) -> None:
    """Real directories down to this path: a link or a file in its place is replaced."""
    directory = work
    for part in path.split("/")[:-1]:
        directory = directory / part
        try:
            if stat.S_ISDIR(directory.lstat().st_mode):
                continue
            directory.unlink()
        except FileNotFoundError:
            pass
        directory.mkdir()


def _is_below_real_directories(work: Path, path: str) -> bool:
    parents = [work / Path(*path.split("/")[:number]) for number in range(1, path.count("/") + 1)]
    return all(stat.S_ISDIR(parent.lstat().st_mode) for parent in parents)


def _move_away(work: Path, attempt: Path) -> None:
    """The directory of the attempt before. What cannot be removed goes with the job's pods."""
    old = attempt / f".work-{secrets.token_hex(8)}"
    with suppress(FileNotFoundError):
        if not work.is_symlink():
            work.chmod(0o700)  # a directory that its owner may not write to cannot be moved
        work.rename(old)
        with suppress(RecursionError):  # a thousand levels deep
            shutil.rmtree(old, ignore_errors=True)
