"""A job's files: what its working directory holds besides its code, and where that is stored.

The content of a file is stored in parts, each a blob named by its SHA-256 and by the save that
uploaded it. Small files share blobs, because each write waits for the store. A list names the files
of one moment. The list of a checkpoint is a file of that checkpoint (`files.json`); other lists are
below `files/<tenant>/<job>/lists/`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, FailFast, Field, StringConstraints

from drivetrain_schemas.base import Payload, UtcTime, Value, event
from drivetrain_schemas.ids import JobId, RunId, TenantId
from drivetrain_schemas.text import AS_PRINTED
from drivetrain_schemas.topics import EVENTS_CHECKPOINTS
from drivetrain_schemas.units import Attempt, Bytes, Fence, Ordinal

LIST = "files.json"  # in the directory of a checkpoint
PART_BYTES = 8 * 1024**2
# Small enough that reading one of its files costs little, large enough for 16 of them.
PACK_BYTES = 1024**2
MAX_PACKED_FILE_BYTES = 64 * 1024
MAX_FILES = 10_000
MAX_FILE_BYTES = 1024**3
MAX_TOTAL_BYTES = 4 * 1024**3
MAX_PATH_BYTES = 1024
MAX_LIST_BYTES = 32 * 1024**2
MAX_EXAMPLES = 10
_LIST_NAME = re.compile(r"f(?P<fence>[0-9]{12})-n(?P<number>[0-9]{8})-[0-9a-f]{8}\.json")
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def is_path(path: str) -> bool:
    """Whether this is a relative path that stays below its root and can be shown as a line."""
    if _CONTROL.search(path) or len(path.encode("utf-8", "replace")) > MAX_PATH_BYTES:
        return False
    return not any(part in ("", ".", "..") for part in path.split("/"))


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` to `target` leads to a place below the root."""
    if not target or _CONTROL.search(target) or len(target.encode("utf-8")) > MAX_PATH_BYTES:
        return False
    if target.startswith("/"):
        return False
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else int(part not in ("", "."))
        if depth < 0:
            return False
    return True


def _checked_path(path: str) -> str:
    if not is_path(path):
        raise ValueError("it is no path below the job's directory")
    return path


FilePath = Annotated[str, AfterValidator(_checked_path)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
BlobName = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}-[0-9a-f]{8}$")]
Example = Annotated[str, StringConstraints(max_length=300), AS_PRINTED]


class Packed(Value):
    """A place in a blob of several files, which has `blob_bytes` in all."""

    blob: BlobName
    offset: Annotated[int, Field(ge=0, lt=PACK_BYTES)]
    blob_bytes: Annotated[int, Field(gt=0, le=PACK_BYTES)]


class JobFile(Value):
    """A regular file. All parts but the last have `PART_BYTES`; `mode` has permissions only.

    `packed`: where its content is instead, if it is small.
    """

    path: FilePath
    size_bytes: Bytes
    mode: Annotated[int, Field(ge=0, le=0o777)]
    modified_at_ns: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    sha256: Sha256
    parts: Annotated[tuple[BlobName, ...], FailFast()] = ()
    packed: Packed | None = None

    @property
    def blobs(self) -> tuple[str, ...]:
        return self.parts if self.packed is None else (self.packed.blob,)


class JobLink(Value):
    """A symbolic link to a place below the job's directory."""

    path: FilePath
    target: Annotated[str, StringConstraints(max_length=MAX_PATH_BYTES)]


class FilesSummary(Value):
    """How much was saved, how many files were not, and for some of them why."""

    num_files: Ordinal
    size_bytes: Bytes
    num_left_out: Ordinal = 0
    left_out: Annotated[tuple[Example, ...], Field(max_length=MAX_EXAMPLES)] = ()


class FileList(Value):
    """The files of one moment. `removed`: files of the code that the program has deleted.

    `is_resumable`: the next attempt starts with these files if the job has no checkpoint. Reading
    ends at the first flaw: a program of the job may have written any number of them.
    """

    format: Annotated[int, Field(ge=1, le=1)] = 1
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    is_resumable: bool = True
    files: Annotated[tuple[JobFile, ...], FailFast(), Field(max_length=MAX_FILES)] = ()
    links: Annotated[tuple[JobLink, ...], FailFast(), Field(max_length=MAX_FILES)] = ()
    removed: Annotated[tuple[FilePath, ...], FailFast(), Field(max_length=100_000)] = ()
    summary: FilesSummary
    saved_at: UtcTime


@event("files.saved", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class FilesSaved(Payload):
    """The newest files of a job that were saved without a checkpoint.

    `list_key` is the key of their list in the object store.
    """

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    list_key: Annotated[str, StringConstraints(max_length=512)]
    files: FilesSummary


@dataclass(frozen=True, slots=True, order=True)
class ListOrder:
    """The position of a list among those of its job that belong to no checkpoint."""

    fence: int
    number: int
    name: str


def files_directory(tenant_id: str, job_id: str) -> str:
    """Where the blobs and lists of a job are, without a slash at the end."""
    return f"files/{tenant_id}/{job_id}"


def blob_key(name: str) -> str:
    """Below the job's directory of files."""
    return f"blobs/{name}"


def list_key(fence: int, number: int, nonce: int) -> str:
    """Below the job's directory of files. `number` counts the lists of a run."""
    return f"lists/f{fence:012d}-n{number:08d}-{nonce & 0xFFFFFFFF:08x}.json"


def parse_list_key(key: str) -> ListOrder | None:
    """None if this is not the key of a list, relative to the job's directory of files."""
    matched = _LIST_NAME.fullmatch(key.removeprefix("lists/"))
    if matched is None or not key.startswith("lists/"):
        return None
    return ListOrder(int(matched["fence"]), int(matched["number"]), key)


def newest_lists_first(keys: Iterable[str]) -> list[ListOrder]:
    return sorted((order for key in keys if (order := parse_list_key(key))), reverse=True)
