"""Whether the code that a benchmark measures is still what it was: a digest of its files.

Only content counts, so the answer is the same in every checkout of the same files, with or without
history. Documents, bytecode and what editors leave are not measured.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

_CODE = {".py", ".sql", ".html", ".css", ".js", ".yaml", ".toml"}


def digest(root: Path, paths: Sequence[str]) -> str:
    """Of the names and contents of all code in these files and folders below `root`."""
    found = hashlib.sha256()
    for path in sorted({file for name in paths for file in _files(root / name)}):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return found.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for each in path.rglob("*"):
        if each.is_file() and each.suffix in _CODE:
            yield each
