"""One suite for the storages of the training side: a directory, and a real S3."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.errors import StorageError
from drivetrain.storage import S3Storage, Storage, open_storage
from tests import s3_server


@pytest.fixture(params=["directory", "s3"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    if request.param == "directory":
        yield open_storage((tmp_path / "with a space").as_uri())
        return
    endpoint = request.getfixturevalue("s3").endpoint_url
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    opened = open_storage(f"s3://{s3_server.BUCKET}/trainer-{secrets.token_hex(4)}", endpoint)
    assert isinstance(opened, S3Storage)
    yield opened
    opened.close()


def test_what_was_put_is_got_and_listed(storage: Storage) -> None:
    storage.put("a/one", b"1")
    storage.put("a/two", b"2")
    storage.put("b/one", b"")
    assert storage.get("a/two") == b"2"
    assert storage.get("b/one") == b""
    assert storage.list() == ["a/one", "a/two", "b/one"]
    assert storage.list("a/t") == ["a/two"]
    assert storage.list("c/") == []


def test_what_is_put_again_is_replaced(storage: Storage) -> None:
    storage.put("a/one", b"old")
    storage.put("a/one", b"new")
    assert storage.get("a/one") == b"new"


def test_what_is_not_there_is_none(storage: Storage) -> None:
    assert storage.get("a/one") is None


def test_only_the_first_puts_if_absent(storage: Storage) -> None:
    assert storage.put_if_absent("a/manifest.json", b"first")
    assert not storage.put_if_absent("a/manifest.json", b"second")
    assert storage.get("a/manifest.json") == b"first"
    assert storage.list() == ["a/manifest.json"]


def test_deleted_is_gone_and_may_be_deleted_again(storage: Storage) -> None:
    storage.put("a/one", b"1")
    storage.delete("a/one")
    storage.delete("a/one")
    assert storage.list() == []


def test_another_thread_may_use_it(storage: Storage) -> None:
    storage.put("a/one", b"1")

    async def in_a_thread() -> bytes | None:
        return await asyncio.to_thread(storage.get, "a/one")

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(in_a_thread()) == b"1"
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_an_s3_that_is_away_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    away = S3Storage("bucket", "", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match="one"):
        away.get("one")
    away.close()
