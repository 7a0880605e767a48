"""Opens the object store that an address names: a directory on one machine, or any S3."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from services.runtime.directory_store import DirectoryStore
from services.runtime.errors import ConfigurationError
from services.runtime.object_store import ObjectStore
from services.runtime.s3_store import S3Store


def open_object_store(url: str, endpoint_url: str | None = None) -> ObjectStore:
    """`file:///directory` or `s3://bucket/prefix`. Raises ConfigurationError."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(parts.netloc, parts.path.strip("/"), endpoint_url)
    raise ConfigurationError(
        f"DRIVETRAIN_OBJECT_STORE_URL: {url!r}: write file:///directory or s3://bucket/prefix"
    )
