"""What the pods of a finished job left on disk: measured, and removed.

Their programs may have left anything: directories deeper than a path may be long or a call stack
may grow, some that nobody may read, links to other places. Nothing here calls itself, spells out a
path below the root, or follows a link.
"""

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def disk_bytes(root: Path) -> int:
    """What the files below take on disk: one with holes takes less than its length.

    What cannot be read counts as nothing.
    """
    try:
        here = os.open(root, _DIRECTORY)
    except OSError:
        return 0
    try:
        total, names = _measure(here)
        pending = [names]
        while pending:
            if pending[-1]:
                try:
                    here = _moved(here, pending[-1].pop())
                except OSError:
                    continue
                num_bytes, names = _measure(here)
                total += num_bytes
                pending.append(names)
            else:
                pending.pop()
                if pending:
                    here = _moved(here, "..")
    finally:
        os.close(here)
    return total


def remove_tree(root: Path) -> None:
    """Level by level: what is in a directory is moved up before it is removed. Raises OSError."""
    try:
        if root.is_symlink():
            root.unlink()
            return
        top = open_closed(str(root), None)
    except FileNotFoundError:
        return
    try:
        # Names that nothing in there has.
        unique = (f".{secrets.token_hex(8)}.{number}" for number in itertools.count())
        while names := _split(top)[1]:
            for name in names:
                directory = open_closed(name, top)
                try:
                    _empty(directory, top, unique)
                finally:
                    os.close(directory)
                os.rmdir(name, dir_fd=top)
        for name in _split(top)[0]:
            os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    root.rmdir()


def open_directory(name: str, above: int | None) -> int:
    """No link in its place. Raises OSError."""
    return os.open(name, _DIRECTORY, dir_fd=above)


def open_closed(name: str, above: int | None) -> int:
    """As `open_directory`, where its permissions may not let even its owner in."""
    handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
    return open_directory(name, above)


def _measure(directory: int) -> tuple[int, list[str]]:
    """The bytes of its files, and the names of its directories."""
    files, directories = _split(directory)
    total = 0
    for name in files:
        with contextlib.suppress(OSError):
            total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_blocks * 512
    return total, directories


def _moved(here: int, name: str) -> int:
    """The directory `name` in the place of `here`."""
    there = open_directory(name, here)
    os.close(here)
    return there


def _split(directory: int) -> tuple[list[str], list[str]]:
    """The names of files and whatever else, and of directories."""
    files: list[str] = []
    directories: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    return files, directories


def _empty(directory: int, top: int, unique: Iterator[str]) -> None:
    """Remove its files, and move its directories to the top."""
    files, directories = _split(directory)
    for name in files:
        os.unlink(name, dir_fd=directory)
    for name in directories:
        os.close(open_closed(name, directory))  # one that is read-only cannot be moved
        os.rename(name, next(unique), src_dir_fd=directory, dst_dir_fd=top)
