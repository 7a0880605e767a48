"""A job's files: fetched from the object store, verified by their hash, unpacked into `code/`.

Address and archive are data from outside. The address must be in the platform's object store
(`store:KEY`, or absolute) or below one of the locations in the scheduler's settings. Members that
would be written outside of the directory, devices and links out of it are refused, and both sizes
are bounded.
"""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from drivetrain.storage import open_storage, open_unmarked
from drivetrain_schemas.jobs import Code
from drivetrain_schemas.pods import PodSpec

MAX_PACKED_BYTES = 256 * 1024**2
MAX_UNPACKED_BYTES = 2 * 1024**3
MAX_MEMBERS = 100_000


STORE = "store:"


class InvalidCode(Exception):
    """The archive is not the one that the job names, or must not be unpacked."""


class MissingCode(InvalidCode):
    """There is no archive yet."""


def fetch(code: Code, spec: PodSpec, directory: Path) -> None:
    """Fetch and unpack. Raises InvalidCode or StorageError."""
    data = _read(code.uri, spec)
    if data is None:
        raise MissingCode(f"code: there is nothing at {code.uri}")
    if hashlib.sha256(data).hexdigest() != code.sha256:
        raise InvalidCode(f"code: {code.uri} has another SHA-256 than the job names")
    unpack(data, directory)


def _read(uri: str, spec: PodSpec) -> bytes | None:
    """Read from the platform's own store; only an available store can report it missing."""
    endpoint_url = spec.object_store_endpoint_url
    if uri.startswith(STORE):
        uri = f"{spec.object_store_url.rstrip('/')}/{uri.removeprefix(STORE)}"
    for root in (spec.object_store_url, *spec.code_urls):
        key = key_below(uri, root)
        if key is None:
            continue
        if root == spec.object_store_url:
            return open_storage(root, endpoint_url, store_id=spec.object_store_id).get(
                key, MAX_PACKED_BYTES
            )
        return open_unmarked(root, endpoint_url).get(key, MAX_PACKED_BYTES)
    raise InvalidCode(
        f"code: {uri} is not below the platform's object store; upload it with POST /v1/code, or "
        "let the operator add its place to DRIVETRAIN_CODE_URLS"
    )


def key_below(uri: str, root: str) -> str | None:
    """The part of `uri` below `root`; None where it is elsewhere, or leaves it."""
    start = root.rstrip("/") + "/"
    key = uri.removeprefix(start)
    if key == uri or any(part in ("", ".", "..") for part in key.split("/")):
        return None
    return key


def unpack(data: bytes, directory: Path) -> None:
    """Unpack a gzipped tar. Raises InvalidCode with the forbidden member."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            _check_size(archive)
            archive.extractall(directory, filter="data")
    except tarfile.FilterError as error:
        raise InvalidCode(f"code: {error}") from error
    # RecursionError: tarfile reads headers that extend headers by calling itself.
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, OSError, RecursionError) as error:
        raise InvalidCode(f"code: cannot be unpacked: {error}") from error


def _check_size(archive: tarfile.TarFile) -> None:
    size = 0
    for number, member in enumerate(archive, start=1):
        size += member.size
        if size > MAX_UNPACKED_BYTES or number > MAX_MEMBERS:
            raise InvalidCode(
                f"code: unpacked more than {MAX_UNPACKED_BYTES} bytes or {MAX_MEMBERS} files"
            )
