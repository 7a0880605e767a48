"""Saving a job's files: `capture` takes those of this moment, `write` stores them.

`capture` is called between two steps and costs what has changed: an unchanged file is not read, a
changed one is copied aside. A file that is written to at that moment is copied again; one that is
written to all the time, or for whose copy there is no space, is left out, or kept as it was saved
last. Where names change meanwhile, it looks again. `write` may run in the background and may be
repeated. A blob is uploaded under a new name unless the previous list of this session
names it: the platform deletes what no list has named for an hour, and never what the newest list
names.
"""

import errno
import hashlib
import itertools
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from drivetrain.errors import StorageError
from drivetrain.files import scanning
from drivetrain.files.mappings import Mappings
from drivetrain.files.packs import Copy, Pack, Place, grouped, wasted_blobs
from drivetrain.files.record import Record
from drivetrain.files.scanning import LeftOut, Limits, Scan, Seen, Signature
from drivetrain.files.threads import side_by_side
from drivetrain.storage import Storage
from drivetrain_schemas.job_files import (
    MAX_FILES,
    MAX_LIST_BYTES,
    PART_BYTES,
    FileList,
    FilesSummary,
    JobFile,
    JobLink,
    blob_key,
)
from drivetrain_schemas.object_store import StoreFailure

_TRIES = 3
_TRY_AGAIN_SECONDS = 0.05
_PATIENT_SECONDS = 1.0  # for all files of a capture, because training waits for it
# A change within one tick of the file system's clock does not change a signature.
_SETTLED_NS = 2_000_000_000
_READ_AGAIN = (-1, 0, 0, 0)  # the signature of no file
_TIMES_NS = (-(2**63), 2**63 - 1)  # file systems know years that a list cannot name
# Half of the time after which the platform may delete a blob that no list names.
_NAMED_WITHIN_SECONDS = 1800.0
_OF_THE_COPY = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_NOT_COPIED_BY_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class _NoCopy(Exception):
    """There is no space for a copy, or no place."""


@dataclass(frozen=True, slots=True)
class Captured:
    """The files of one moment."""

    unchanged: tuple[JobFile, ...]
    copies: tuple[Copy, ...]
    links: tuple[JobLink, ...]
    removed: tuple[str, ...]
    left_out: LeftOut
    kept: dict[str, Signature]

    @property
    def is_empty(self) -> bool:
        """Nothing differs from the code."""
        return not (self.unchanged or self.copies or self.links or self.removed)


@dataclass(frozen=True, slots=True)
class Saved:
    """The run that saves."""

    tenant_id: str
    job_id: str
    run_id: str
    attempt: int
    fence: int


@dataclass(slots=True)
class _Uploads:
    """Blobs that no list names yet, by SHA-256, with the time of their upload."""

    names: dict[str, tuple[str, float]] = field(default_factory=dict)

    def find(self, sha256: str) -> str | None:
        name, uploaded_at = self.names.get(sha256, ("", 0.0))
        return name if name and _now() - uploaded_at < _NAMED_WITHIN_SECONDS / 2 else None


class FileSaver:
    """Saves the files of one job from one process. `storage` is the job's directory of files."""

    def __init__(
        self,
        root: Path,
        spool: Path,
        storage: Storage,
        record: Record,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        newest: FileList | None = None,
    ) -> None:
        self._root = root
        self._spool = spool
        self._storage = storage
        self._record = record
        self._limits = limits
        # What the newest list names, and which files were unchanged since.
        self._known: dict[str, tuple[Signature, JobFile]] = dict(record.restored)
        self._blobs: dict[str, str] = {}
        self._stored: dict[str, JobFile] = {}
        self._index()
        self._uploads = _Uploads()
        self._newest = newest  # None: nothing is known to be saved as it is
        self._numbers = itertools.count()  # of copies
        self._patient_until = 0.0
        self._is_quiet = False

    @property
    def record(self) -> Record:
        """What the newest list holds."""
        return replace(self._record, restored=self._known)

    def capture(self, *, is_quiet: bool = False) -> Captured:
        """Raises OSError if the directory cannot be read.

        `is_quiet`: no process is left that could write to it, so nothing is copied aside.
        """
        self._is_quiet = is_quiet
        shutil.rmtree(self._spool, ignore_errors=True)
        with suppress(OSError):  # then there is no space for a copy either
            self._spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._patient_until = time.monotonic() + _PATIENT_SECONDS
        copies: dict[str, Copy] = {}
        for _ in range(_TRIES):
            found = scanning.scan(self._root, self._limits)
            captured = self._capture_found(found, copies)
            if not found.has_moved():
                break
        return captured

    def _capture_found(self, found: Scan, copies: dict[str, Copy]) -> Captured:
        """`copies`: those of the try before, which need not be made again."""
        left_out = found.left_out
        for path, reason in self._record.lost.items():
            if path not in found.files:  # the program may have written it again
                left_out.add(path, reason)
        chosen = scanning.choose(found.files, self._record.code, self._limits, left_out)
        unchanged: list[JobFile] = []
        kept: dict[str, Signature] = {}
        earlier = copies.copy()
        copies.clear()
        mappings = Mappings()
        for seen in chosen:
            known = self._known.get(seen.path)
            if known is not None and known[0] == seen.signature:
                unchanged.append(known[1])
                kept[seen.path] = seen.signature
                continue
            copy = earlier.get(seen.path)
            if copy is not None and copy.seen.signature == seen.signature:
                copies[seen.path] = copy
                continue
            try:
                copy = self._copy(seen.path, left_out, mappings)
            except FileNotFoundError:
                found.has_vanished = True
                continue
            if copy is not None:
                copies[seen.path] = copy
            elif known is not None:
                unchanged.append(known[1])
                kept[seen.path] = known[0]
        return Captured(
            unchanged=tuple(unchanged),
            copies=tuple(copies.values()),
            links=self._links(found),
            removed=self._removed(found),
            left_out=left_out,
            kept=kept,
        )

    def _links(self, found: Scan) -> tuple[JobLink, ...]:
        links = [
            JobLink(path=path, target=target)
            for path, target in found.links.items()
            if self._record.code_links.get(path) != target
        ]
        for link in links[MAX_FILES:]:
            found.left_out.add(link.path, f"the job has more than {MAX_FILES:,} links")
        return tuple(sorted(links[:MAX_FILES], key=lambda link: link.path))

    def _removed(self, found: Scan) -> tuple[str, ...]:
        code = self._record.code.keys() | self._record.code_links.keys()
        return tuple(sorted(code - found.files.keys() - found.links.keys()))

    def is_written(self, captured: Captured) -> bool:
        """Whether the newest list holds these very files.

        Copies are read, because a change may leave the signature of a file as it was, but only
        if nothing else differs.
        """
        newest = self._newest
        if newest is None or (captured.links, captured.removed) != (newest.links, newest.removed):
            return False
        files = {file.path: file for file in newest.files}
        if len(files) != len(captured.unchanged) + len(captured.copies):
            return False
        if any(files.get(file.path) != file for file in captured.unchanged):
            return False
        pairs = [(copy, files.get(copy.seen.path)) for copy in captured.copies]
        return all(file is not None and _looks_like(copy, file) for copy, file in pairs) and all(
            file is not None and _sha256_of(copy.content) == file.sha256 for copy, file in pairs
        )

    def write(self, captured: Captured, by: Saved, *, is_resumable: bool = True) -> FileList:
        """Upload what changed. The list is for the caller to store; `written` follows that.

        Raises StorageError; the same call may succeed later.
        """
        nonce = secrets.token_hex(4)
        try:
            groups = side_by_side(
                lambda group: self._upload(group, nonce), grouped(captured.copies)
            )
        except StorageError as error:
            if error.failure == StoreFailure.FULL:
                self._delete_uploads()
            raise
        files = [*captured.unchanged, *(file for group in groups for file in group)]
        self._check_age(files)
        return FileList(
            tenant_id=by.tenant_id,
            job_id=by.job_id,
            run_id=by.run_id,
            attempt=by.attempt,
            fence=by.fence,
            is_resumable=is_resumable,
            files=tuple(sorted(files, key=lambda file: file.path)),
            links=captured.links,
            removed=captured.removed,
            summary=FilesSummary(
                num_files=len(files),
                size_bytes=sum(file.size_bytes for file in files),
                num_left_out=captured.left_out.total,
                left_out=tuple(captured.left_out.examples),
            ),
            saved_at=datetime.now(UTC),
        )

    def written(self, captured: Captured, stored: FileList) -> None:
        """The list is in the store: the next save builds on it."""
        by_path = {file.path: file for file in stored.files}
        known = {path: (signature, by_path[path]) for path, signature in captured.kept.items()}
        for copy in captured.copies:
            path = copy.seen.path
            known[path] = (copy.seen.signature if copy.is_settled else _READ_AGAIN, by_path[path])
        self._known = known
        self._index()
        self._newest = stored
        self._uploads = _Uploads()
        shutil.rmtree(self._spool, ignore_errors=True)

    # Copying

    def _copy(self, path: str, left_out: LeftOut, mappings: Mappings) -> Copy | None:
        """A copy that is whole: the file was the same before and after it was read.

        None if there is none, with the reason in `left_out`. Raises FileNotFoundError.
        """
        if self._is_quiet:
            return self._as_it_is(path)
        target = self._spool / str(next(self._numbers))
        for number in range(_TRIES):
            if number:
                if time.monotonic() > self._patient_until:
                    break
                time.sleep(_TRY_AGAIN_SECONDS)
            try:
                copied = self._copy_once(self._root / path, path, target)
            except FileNotFoundError:
                raise
            except _NoCopy as error:
                with suppress(OSError):
                    target.unlink()
                left_out.add(path, f"no copy of it can be made ({error})")
                return None
            except OSError as error:
                left_out.add(path, f"it cannot be read ({error.strerror})")
                return None
            if copied is not None:
                age_ns = time.time_ns() - copied.changed_at_ns
                is_settled = age_ns > _SETTLED_NS and not mappings.has(copied.signature[3])
                return Copy(copied, target, is_settled)
        left_out.add(path, "it was written to all the time")
        return None

    def _as_it_is(self, path: str) -> Copy:
        source = self._root / path
        return Copy(scanning.see(path, source.lstat()), source, is_settled=False)

    def _copy_once(self, source: Path, path: str, target: Path) -> Seen | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(source, flags)
        with open(descriptor, "rb"):
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise FileNotFoundError(path)
            if before.st_size > self._limits.file_bytes:
                return None  # it grew since the scan
            with _writable(target) as copy:
                _copy_bytes(descriptor, copy.fileno(), before.st_size)
            first, last = scanning.see(path, before), scanning.see(path, os.fstat(descriptor))
        return first if first.signature == last.signature else None

    # Uploading

    def _upload(self, group: Sequence[Copy], nonce: str) -> list[JobFile]:
        """Of one file, or of several small ones in one blob."""
        if len(group) == 1:
            return [self._upload_alone(group[0], nonce)]
        contents = [copy.content.read_bytes() for copy in group]
        pack = Pack(contents, known=self._stored)
        blob = self._upload_part(pack.blob, nonce) if pack.blob else ""
        return [
            _file(copy.seen, len(content), sha256, pack.place_of(sha256, blob))
            for copy, content, sha256 in zip(group, contents, pack.sha256s, strict=True)
        ]

    def _upload_alone(self, copy: Copy, nonce: str) -> JobFile:
        whole = hashlib.sha256()
        parts: list[str] = []
        size = 0
        with copy.content.open("rb") as file:
            while data := file.read(PART_BYTES):
                whole.update(data)
                size += len(data)
                parts.append(self._upload_part(data, nonce))
        return _file(copy.seen, size, whole.hexdigest(), Place(tuple(parts), None))

    def _upload_part(self, data: bytes, nonce: str) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        known = self._blobs.get(sha256) or self._uploads.find(sha256)
        if known is not None:
            return known
        name = f"{sha256}-{nonce}"
        began_at = _now()
        self._storage.put(blob_key(name), data)
        self._uploads.names[sha256] = (name, began_at)
        return name

    def _index(self) -> None:
        """What is stored already, by content. A file in a blob of which little is used is read
        again, and with the next save the blob is not."""
        files = [file for _, file in self._known.values()]
        wasted = wasted_blobs(files)
        for path, (_, file) in self._known.items():
            if wasted.intersection(file.blobs):
                self._known[path] = (_READ_AGAIN, file)
        kept = [file for file in files if not wasted.intersection(file.blobs)]
        self._blobs = {blob[:64]: blob for file in kept for blob in file.blobs}
        self._stored = {file.sha256: file for file in kept}

    def _delete_uploads(self) -> None:
        """A full store gets its space back, for the training state."""
        for name, _ in self._uploads.names.values():
            with suppress(StorageError):
                self._storage.delete(blob_key(name))
        self._uploads = _Uploads()

    def _check_age(self, files: list[JobFile]) -> None:
        named = {blob for file in files for blob in file.blobs}
        for name, uploaded_at in self._uploads.names.values():
            if name in named and _now() - uploaded_at > _NAMED_WITHIN_SECONDS:
                raise StorageError("the files took too long to upload and are uploaded again")


@contextmanager
def _writable(target: Path) -> Iterator[BinaryIO]:
    """A new copy. Raises _NoCopy."""
    try:
        copy = target.open("wb")
    except OSError as error:
        raise _NoCopy(error.strerror) from error
    with copy:
        try:
            yield copy
        except OSError as error:
            if error.errno in _OF_THE_COPY:
                raise _NoCopy(error.strerror) from error
            raise


def _copy_bytes(source: int, target: int, size: int) -> None:
    """By the kernel; file systems that can share blocks copy nothing."""
    done = 0
    try:
        while done < size and (number := os.copy_file_range(source, target, size - done)):
            done += number
    except OSError as error:
        if done or error.errno not in _NOT_COPIED_BY_KERNEL:
            raise
        while done < size and (number := os.sendfile(target, source, done, size - done)):
            done += number


def encoded(files: FileList) -> bytes:
    """Raises StorageError for a list that nothing would read: no attempt could start with it."""
    data = files.model_dump_json(exclude_none=True).encode()
    if len(data) > MAX_LIST_BYTES:
        raise StorageError(f"the list of the job's files has more than {MAX_LIST_BYTES:,} bytes")
    return data


def _looks_like(copy: Copy, file: JobFile) -> bool:
    seen = copy.seen
    described = (seen.size_bytes, seen.mode, _as_listed(seen.modified_at_ns))
    return described == (file.size_bytes, file.mode, file.modified_at_ns)


def _sha256_of(content: Path) -> str:
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file(seen: Seen, size_bytes: int, sha256: str, place: Place) -> JobFile:
    return JobFile(
        path=seen.path,
        size_bytes=size_bytes,
        mode=seen.mode,
        modified_at_ns=_as_listed(seen.modified_at_ns),
        sha256=sha256,
        parts=place.parts,
        packed=place.packed,
    )


def _as_listed(time_ns: int) -> int:
    return min(max(time_ns, _TIMES_NS[0]), _TIMES_NS[1])


def _now() -> float:
    """Seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
