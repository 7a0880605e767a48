"""Which lists of files are kept, and which stored content no list names any more.

Lists here are those that belong to no checkpoint; the list of a checkpoint lives as long as it
does. The newest is what people read. Of those that a run may start with two are kept, because the
newest may still be in use by a run that starts while the next one is written.
"""

from collections.abc import Iterable, Sequence

from drivetrain_schemas.job_files import FileList, ListOrder, blob_key

KEPT_RESUMABLE = 2


def expendable_lists(lists: Sequence[tuple[ListOrder, FileList]]) -> tuple[str, ...]:
    """The keys of lists that are not kept."""
    order = sorted(lists, key=lambda one: one[0], reverse=True)
    resumable = [one for one, files in order if files.is_resumable]
    kept = {one.name for one, _ in order[:1]} | {one.name for one in resumable[:KEPT_RESUMABLE]}
    return tuple(one.name for one, _ in reversed(order) if one.name not in kept)


def unnamed(keys: Iterable[str], lists: Iterable[FileList]) -> tuple[str, ...]:
    """The keys of blobs that none of these lists names."""
    named = {blob_key(blob) for one in lists for file in one.files for blob in file.blobs}
    return tuple(key for key in keys if key.startswith(blob_key("")) and key not in named)
