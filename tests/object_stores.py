"""A real object store for a test: in a directory, or a prefix of the S3 server's bucket."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.runtime.object_store import ObjectStore
from services.runtime.stores import initialise, open_object_store
from tests import s3_server


@asynccontextmanager
async def opened_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ObjectStore]:
    """`kind`: directory or s3."""
    url, endpoint = (tmp_path / "objects").as_uri(), None
    if kind == "s3":
        endpoint = request.getfixturevalue("s3").endpoint_url
        for name, value in s3_server.ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{s3_server.BUCKET}/prefix-{secrets.token_hex(4)}"
    await initialise(url, endpoint)
    opened = open_object_store(url, endpoint)
    yield opened
    await opened.close()
