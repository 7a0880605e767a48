"""Small files in common blobs: thousands of them would each wait for a write of the store.

Pure, but for the content of the files. What is stored already is named where it is; the rest of a
group becomes one blob.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drivetrain.files.scanning import Seen
from drivetrain_schemas.job_files import MAX_PACKED_FILE_BYTES, PACK_BYTES, JobFile, Packed


@dataclass(frozen=True, slots=True)
class Copy:
    """A changed file. `is_settled`: a further change of it would change its signature."""

    seen: Seen
    content: Path
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where the content of a file is stored."""

    parts: tuple[str, ...]
    packed: Packed | None


class Pack:
    """The blob of a group of files; `sha256s` are those of their contents."""

    def __init__(self, contents: Sequence[bytes], known: Mapping[str, JobFile]) -> None:
        self.sha256s = [hashlib.sha256(content).hexdigest() for content in contents]
        self._known = known
        self._offsets: dict[str, int] = {}
        pieces = []
        offset = 0
        for sha256, content in zip(self.sha256s, contents, strict=True):
            if content and sha256 not in known and sha256 not in self._offsets:
                self._offsets[sha256] = offset
                pieces.append(content)
                offset += len(content)
        self.blob = b"".join(pieces)

    def place_of(self, sha256: str, blob: str) -> Place:
        """`blob`: the name under which it was stored."""
        offset = self._offsets.get(sha256)
        if offset is not None:
            packed = Packed(blob=blob, offset=offset, blob_bytes=len(self.blob))
            return Place((), packed)
        file = self._known.get(sha256)
        return Place((), None) if file is None else Place(file.parts, file.packed)


def grouped(copies: Sequence[Copy]) -> list[list[Copy]]:
    """Each large file alone, small ones together as far as they fit into a blob."""
    groups: list[list[Copy]] = []
    group: list[Copy] = []
    size = 0
    for copy in copies:
        if copy.seen.size_bytes > MAX_PACKED_FILE_BYTES:
            groups.append([copy])
            continue
        if size + copy.seen.size_bytes > PACK_BYTES:
            groups.append(group)
            group, size = [], 0
        group.append(copy)
        size += copy.seen.size_bytes
    return [*groups, group] if group else groups


def wasted_blobs(files: Iterable[JobFile]) -> frozenset[str]:
    """The common blobs of which these files use less than half."""
    used: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    places = {(file.packed.blob, file.packed.offset): file for file in files if file.packed}
    for (blob, _), file in places.items():
        assert file.packed is not None
        used[blob] += file.size_bytes
        sizes[blob] = file.packed.blob_bytes
    return frozenset(blob for blob, size in sizes.items() if 2 * used[blob] < size)
