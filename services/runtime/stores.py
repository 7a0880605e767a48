"""Opens the object store that an address names: a directory on one machine, or any S3.

`python -m services.runtime.stores` initialises the one of `DRIVETRAIN_OBJECT_STORE_URL`: it writes
the marker, without which no part of the platform uses a store, and prints its id. Done once, at the
platform's first start; repeating it changes nothing. Exit codes: 0 done, 1 the store does not
answer, 2 an invalid setting, which is named.
"""

import asyncio
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from drivetrain_schemas.object_store import MARKER_KEY, StoreFailure, StoreMarker, new_marker
from services.runtime.directory_store import DirectoryStore
from services.runtime.errors import ConfigurationError, StoreError
from services.runtime.marked_store import MarkedStore
from services.runtime.object_store import ObjectStore

_TRUSTED_SECONDS = 10.0


def open_object_store(
    url: str, endpoint_url: str | None = None, store_id: str | None = None
) -> ObjectStore:
    """`file:///directory` or `s3://bucket/prefix`. Raises ConfigurationError.

    `store_id`: the id that the marker must have; None for any.
    """
    inner = _open(url, endpoint_url)
    trusted_seconds = 0.0 if isinstance(inner, DirectoryStore) else _TRUSTED_SECONDS
    return MarkedStore(inner, url, store_id, trusted_seconds=trusted_seconds)


async def initialise(url: str, endpoint_url: str | None = None) -> str:
    """Write the marker of a store that has none; returns the id of the marker that is there.

    Raises ConfigurationError, or StoreError where the store does not answer.
    """
    store = _open(url, endpoint_url)
    try:
        if isinstance(store, DirectoryStore):
            await store.create_root()
        marker = new_marker()
        if await store.put_if_absent(MARKER_KEY, marker.model_dump_json().encode()):
            return marker.store_id
        return StoreMarker.model_validate_json(await store.get(MARKER_KEY)).store_id
    except ValidationError as error:
        message = f"the object store {url}: its {MARKER_KEY} is not readable: {error}"
        raise StoreError(message, StoreFailure.UNAVAILABLE) from error
    finally:
        await store.close()


def _open(url: str, endpoint_url: str | None) -> ObjectStore:
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        from services.runtime.s3_store import S3Store  # takes long to import

        return S3Store(parts.netloc, parts.path.strip("/"), endpoint_url)
    raise ConfigurationError(
        f"DRIVETRAIN_OBJECT_STORE_URL: {url!r}: write file:///directory or s3://bucket/prefix"
    )


class _StoreSettings(BaseSettings):
    """Only the settings of a store; other settings may be in the environment too."""

    model_config = SettingsConfigDict(env_prefix="DRIVETRAIN_", extra="ignore")

    object_store_url: str
    object_store_endpoint_url: str | None = None


def main() -> int:
    try:
        settings = _StoreSettings()
        url, endpoint_url = settings.object_store_url, settings.object_store_endpoint_url
        store_id = asyncio.run(initialise(url, endpoint_url))
    except ValidationError:
        print("DRIVETRAIN_OBJECT_STORE_URL: it is not set", file=sys.stderr)
        return 2
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    print(store_id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
