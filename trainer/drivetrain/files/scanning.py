"""What is in a directory, without reading a file: the files and links that may be saved.

In: a directory where programs may have put anything. Out: regular files with what identifies their
content, links that stay inside, and what is left out with the reason. Nothing is followed, nothing
blocks, and the number of entries looked at is bounded. Directories are visited level by level, so a
large data set deep below does not hide the results next to the script.
"""

import os
import stat
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from drivetrain_schemas.job_files import (
    MAX_EXAMPLES,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_PATH_BYTES,
    MAX_TOTAL_BYTES,
    is_path,
    stays_inside,
)

MAX_ENTRIES = 200_000
# Python writes it wherever it imports from.
_NEVER_SAVED = frozenset({"__pycache__"})

NOT_REGULAR = "it is no regular file"

# Size, times of change and inode: another signature means that the content may be another.
Signature = tuple[int, int, int, int]


class Seen(NamedTuple):
    """A regular file as it was seen."""

    path: str
    signature: Signature
    mode: int

    @property
    def size_bytes(self) -> int:
        return self.signature[0]

    @property
    def modified_at_ns(self) -> int:
        return self.signature[1]

    @property
    def changed_at_ns(self) -> int:
        return max(self.signature[1], self.signature[2])


@dataclass(slots=True)
class LeftOut:
    """What is not saved: counted by reason, with some examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, path: str, reason: str, number: int = 1) -> None:
        self.counts[reason] += number
        # One example for each reason first, so that no reason hides the others.
        if self.counts[reason] == number or len(self.examples) < MAX_EXAMPLES // 2:
            text = f"{_shown(path)[-200:]}: {reason}"
            self.examples = [*self.examples, text][:MAX_EXAMPLES]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Limits:
    num_files: int = MAX_FILES
    file_bytes: int = MAX_FILE_BYTES
    total_bytes: int = MAX_TOTAL_BYTES
    num_entries: int = MAX_ENTRIES


@dataclass(slots=True)
class Scan:
    """`files` and `links` by path, the ones nearest to the root first."""

    files: dict[str, Seen] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)
    directories: dict[str, tuple[int, int]] = field(default_factory=dict)
    has_vanished: bool = False

    def has_moved(self) -> bool:
        """Whether a name was added, removed or given to another file since it was looked at.

        A program that writes its next file and then removes the last one has neither of them in
        a scan that saw the directory before the one and the file after the other.
        """
        return self.has_vanished or any(
            _version(directory) != version for directory, version in self.directories.items()
        )


def see(path: str, status: os.stat_result) -> Seen:
    signature = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return Seen(path, signature, stat.S_IMODE(status.st_mode) & 0o777)


def scan(root: Path, limits: Limits = Limits()) -> Scan:
    """Everything below `root`. Raises OSError if the root itself cannot be read.

    Training waits for it, so what is done for each entry is little.
    """
    found = Scan()
    pending: deque[tuple[str, str]] = deque([(os.fspath(root), "")])
    num_left = limits.num_entries
    while pending:
        directory, prefix = pending.popleft()
        entries = _entries(directory, prefix, found)
        _take(entries[:num_left], prefix, found, pending)
        if len(entries) > num_left:
            reason = f"there are more than {limits.num_entries:,} files"
            found.left_out.add(f"{prefix}{entries[num_left].name}", reason)
            break
        num_left -= len(entries)
    return found


def _shown(path: str) -> str:
    """On one line, without what a terminal obeys: a program gives its files any name."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _entries(directory: str, prefix: str, found: Scan) -> list[os.DirEntry[str]]:
    """Raises OSError for the root."""
    try:
        found.directories[directory] = _version(directory)
        with os.scandir(directory) as entries:
            bounded = islice(entries, MAX_ENTRIES + 1)
            return sorted(bounded, key=attrgetter("name"))
    except OSError as error:
        if not prefix:
            raise
        _complain(found, prefix, error)
        return []


def _take(
    entries: list[os.DirEntry[str]], prefix: str, found: Scan, pending: deque[tuple[str, str]]
) -> None:
    """Directories are counted like files, because looking at them takes time as well."""
    is_simple = prefix.isascii() and prefix.isprintable()
    for entry in entries:
        name = entry.name
        path = prefix + name
        if entry.is_dir(follow_symlinks=False):
            if name not in _NEVER_SAVED:
                pending.append((entry.path, f"{path}/"))
            continue
        # What is simple is a path: a name is neither empty nor `..`, and has no slash.
        is_sure = is_simple and name.isascii() and name.isprintable()
        if not (is_sure and len(path) <= MAX_PATH_BYTES) and not is_path(path):
            found.left_out.add(path, "its name is not UTF-8, has control characters or is too long")
            continue
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found.files[path] = see(path, status)
            elif stat.S_ISLNK(status.st_mode):
                _take_link(found, path, os.readlink(entry.path))
            else:
                found.left_out.add(path, NOT_REGULAR)
        except OSError as error:
            _complain(found, path, error)


def _version(directory: str) -> tuple[int, int]:
    """Another one after a name in this directory has changed."""
    try:
        status = os.stat(directory, follow_symlinks=False)
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_ino


def _complain(found: Scan, path: str, error: OSError) -> None:
    if isinstance(error, FileNotFoundError):  # removed meanwhile
        found.has_vanished = True
    else:
        found.left_out.add(path, f"it cannot be read ({error.strerror})")


def _take_link(found: Scan, path: str, target: str) -> None:
    if stays_inside(path, target):
        found.links[path] = target
    else:
        found.left_out.add(path, "it is a link to a place outside of the job's directory")


def choose(
    files: Mapping[str, Seen], code: Mapping[str, Signature], limits: Limits, left_out: LeftOut
) -> list[Seen]:
    """The files to save: those that differ from the code, as far as they fit into the limits.

    In the order of the scan; one that does not fit does not prevent smaller ones after it.
    """
    chosen: list[Seen] = []
    total = 0
    for seen in files.values():
        if code.get(seen.path) == seen.signature:
            continue
        if seen.size_bytes > limits.file_bytes:
            left_out.add(seen.path, f"it has more than {limits.file_bytes:,} bytes")
        elif len(chosen) == limits.num_files:
            left_out.add(seen.path, f"the job has more than {limits.num_files:,} files")
        elif total + seen.size_bytes > limits.total_bytes:
            left_out.add(seen.path, f"all files have more than {limits.total_bytes:,} bytes")
        else:
            chosen.append(seen)
            total += seen.size_bytes
    return chosen
