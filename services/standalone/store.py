"""The object store's first start: its marker is written once per data directory.

In: the data directory and the store's address. Out: the id of the store, which is passed to every
service and pod. `store.json` records that it was done; after that nothing creates the store again,
so one that was moved is unavailable until it is back (docs/architecture.md, rule 10).
"""

import asyncio
import json

from services.runtime.errors import PlatformError
from services.runtime.stores import initialise
from services.standalone.files import as_texts, write_private
from services.standalone.home import Home

_OWN = "in the data directory"  # which may be moved as a whole


def store_id(home: Home, url: str, endpoint_url: str | None) -> str:
    """Initialises the store if this data directory has never used it.

    Raises OSError, or RuntimeError where the store does not answer during that.
    """
    name = _OWN if url == home.objects.as_uri() else url
    known = _read(home)
    if name not in known:
        try:
            known[name] = asyncio.run(initialise(url, endpoint_url))
        except PlatformError as error:
            raise RuntimeError(str(error)) from error
        write_private(home.store, json.dumps(known, indent=2) + "\n")
    return known[name]


def _read(home: Home) -> dict[str, str]:
    try:
        return as_texts(json.loads(home.store.read_text()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise RuntimeError(
            f"{home.store} is damaged ({error}); remove it if the object store is in place."
        ) from error
