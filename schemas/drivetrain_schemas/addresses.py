"""The parts of an address of data, such as s3://bucket/key, as people write it in a job.

`urllib` raises ValueError for some that the contract takes, such as s3://[bucket/key.
"""

import re
from typing import NamedTuple


class Address(NamedTuple):
    """Without a password and without a signature. `scheme` is empty for a plain path."""

    scheme: str
    host: str
    path: str


def read_address(text: str) -> Address:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Address("", "", text)
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    return Address(scheme, host.rpartition("@")[2], slash + path)
