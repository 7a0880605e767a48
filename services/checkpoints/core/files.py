"""Which lists of files are kept, and which stored content no list names any more.

Lists here are those that belong to no checkpoint; the list of a checkpoint lives as long as it
does. The newest is what people read. Of those that a run may start with two are kept, because the
newest may still be in use by a run that starts while the next one is written.
"""

from collections.abc import Container, Iterable

from drivetrain_schemas.job_files import FileList, blob_key

KEPT_RESUMABLE = 2


def is_kept(files: FileList, *, is_newest: bool) -> bool:
    """Of a list that is among the newest as far as the `KEPT_RESUMABLE`-th resumable one."""
    return is_newest or files.is_resumable


def blobs_of(files: FileList) -> frozenset[str]:
    return frozenset(blob for file in files.files for blob in file.blobs)


def unnamed(keys: Iterable[str], named: Container[str]) -> tuple[str, ...]:
    """The keys of blobs that are not among these."""
    blobs = (key for key in keys if key.startswith(blob_key("")))
    return tuple(key for key in blobs if key.removeprefix(blob_key("")) not in named)
