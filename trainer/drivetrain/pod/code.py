"""A job's files: fetched from the object store, proven by their hash, unpacked into `code/`.

An archive is data from outside: members that would land outside of the directory, devices and
links out of it are refused, and what it may unfold to is bounded.
"""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from drivetrain.storage import open_storage, open_unmarked
from drivetrain_schemas.jobs import Code
from drivetrain_schemas.pods import PodSpec

MAX_UNPACKED_BYTES = 2 * 1024**3
MAX_MEMBERS = 100_000


class InvalidCode(Exception):
    """The archive is not what the job named, or must not be unpacked."""


def fetch(code: Code, spec: PodSpec, directory: Path) -> None:
    """Fetch and unpack. Raises InvalidCode or StorageError."""
    data = _read(code.uri, spec)
    if data is None:
        raise InvalidCode(f"code: nothing lies at {code.uri}")
    if hashlib.sha256(data).hexdigest() != code.sha256:
        raise InvalidCode(f"code: {code.uri} has another SHA-256 than the job names")
    unpack(data, directory)


def _read(uri: str, spec: PodSpec) -> bytes | None:
    """From the platform's own store, which must be available to say that it is not there."""
    store_url, endpoint_url = spec.object_store_url.rstrip("/"), spec.object_store_endpoint_url
    if uri.startswith(f"{store_url}/"):
        store = open_storage(store_url, endpoint_url, store_id=spec.object_store_id)
        return store.get(uri.removeprefix(f"{store_url}/"))
    parent, _, name = uri.rpartition("/")
    return open_unmarked(parent, endpoint_url).get(name)


def unpack(data: bytes, directory: Path) -> None:
    """Unpack a gzipped tar. Raises InvalidCode, naming the member that must not be."""
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
