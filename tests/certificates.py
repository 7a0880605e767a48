"""Certificates that tests make: PEM files for clients and servers."""

import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
EXPIRED = {"not_before": LONG_AGO, "not_after": LONG_AGO + datetime.timedelta(days=1)}


def written(directory: Path, name: str, ca: trustme.CA, *hosts: str, **facts: Any) -> list[Path]:
    """A new certificate and its key as PEM files: `<name>.crt`, `<name>.key`."""
    leaf = ca.issue_cert(*hosts, **facts)
    paths = [directory / f"{name}.crt", directory / f"{name}.key"]
    leaf.cert_chain_pems[0].write_to_path(paths[0])
    paths[1].write_bytes(_pkcs8(leaf))
    return paths


def _pkcs8(leaf: trustme.LeafCert) -> bytes:
    """The only form of a key that Java reads."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
