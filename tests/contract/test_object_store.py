"""The object store's contract: in memory, in a directory, and on a real S3 server."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.runtime.directory_store import DirectoryStore
from services.runtime.errors import ConfigurationError, TemporaryError
from services.runtime.object_store import (
    CHUNK_BYTES,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
)
from services.runtime.s3_store import S3Store
from services.runtime.stores import open_object_store
from services.runtime.testing import InMemoryObjectStore
from services.standalone.ports import free_port
from tests import s3_server

pytestmark = pytest.mark.timeout(s3_server.BUILD_SECONDS + 60)


@pytest_asyncio.fixture(params=["memory", "directory", "s3"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ObjectStore]:
    opened: ObjectStore
    if request.param == "memory":
        opened = InMemoryObjectStore()
    elif request.param == "directory":
        opened = DirectoryStore(tmp_path / "objects")
    else:
        endpoint = request.getfixturevalue("s3").endpoint_url
        for name, value in s3_server.ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        opened = S3Store(s3_server.BUCKET, f"prefix-{secrets.token_hex(4)}", endpoint)
    yield opened
    await opened.close()


async def test_what_is_put_is_got(store: ObjectStore) -> None:
    await store.put("a/b.bin", b"\x00\xffcontent")
    assert await store.get("a/b.bin") == b"\x00\xffcontent"
    assert await store.size("a/b.bin") == 9


async def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    await store.put("empty", b"")
    assert await store.get("empty") == b""
    assert await store.size("empty") == 0
    assert await store.list("") == [ObjectInfo("empty", 0)]


async def test_a_put_replaces(store: ObjectStore) -> None:
    await store.put("a", b"first, and longer")
    await store.put("a", b"second")
    assert await store.get("a") == b"second"


async def test_what_is_written_once_stays(store: ObjectStore) -> None:
    content = b"first"
    assert await store.put_if_absent("manifest.json", content) is True
    assert await store.put_if_absent("manifest.json", content) is False
    assert await store.put_if_absent("manifest.json", b"second") is False
    assert await store.get("manifest.json") == content


async def test_of_many_who_write_once_one_wins(store: ObjectStore) -> None:
    contents = [b"%d" % number for number in range(8)]
    won = await asyncio.gather(*(store.put_if_absent("a/one", content) for content in contents))
    assert sum(won) == 1
    assert await store.get("a/one") == contents[won.index(True)]
    assert [info.key for info in await store.list("a/")] == ["a/one"]


async def test_what_is_not_there_is_named(store: ObjectStore) -> None:
    await store.put("folder/a", b"1")
    for key in ("nothing", "folder", "folder/a/b", "no/such/folder"):
        with pytest.raises(NoSuchObject):
            await store.get(key)
        with pytest.raises(NoSuchObject):
            await store.size(key)
        with pytest.raises(NoSuchObject):
            await anext(store.stream(key))


async def test_a_deleted_object_is_gone_and_may_be_deleted_again(store: ObjectStore) -> None:
    await store.put("a/b", b"1")
    for _ in range(2):
        await store.delete("a/b")
    await store.delete("never/was")
    assert await store.list("") == []
    assert await store.put_if_absent("a/b", b"2") is True


async def test_a_listing_is_by_prefix_in_the_order_of_the_keys(store: ObjectStore) -> None:
    for key in ("b/2", "a/1", "b/10", "bc", "b/x/3"):
        await store.put(key, key.encode())
    assert await store.list("b/") == [
        ObjectInfo("b/10", 4),
        ObjectInfo("b/2", 3),
        ObjectInfo("b/x/3", 5),
    ]
    assert [info.key for info in await store.list("b")] == ["b/10", "b/2", "b/x/3", "bc"]
    assert len(await store.list("")) == 5
    assert await store.list("nothing/here") == []


async def test_a_large_object_comes_in_pieces(store: ObjectStore) -> None:
    content = secrets.token_bytes(CHUNK_BYTES * 2 + 17)
    await store.put("large", content)
    pieces = [piece async for piece in store.stream("large")]
    assert max(map(len, pieces)) <= CHUNK_BYTES
    assert len(pieces) >= 3
    assert b"".join(pieces) == content


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "/etc/passwd"])
async def test_no_key_leads_out_of_the_directory(tmp_path: Path, key: str) -> None:
    store = DirectoryStore(tmp_path / "objects")
    (tmp_path / "outside").write_bytes(b"secret")
    for call in (store.get(key), store.put(key, b"x"), store.size(key), store.delete(key)):
        with pytest.raises(ValueError, match="leaves the object store"):
            await call
    assert (tmp_path / "outside").read_bytes() == b"secret"


async def test_a_write_that_fails_leaves_nothing_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("a/old", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (store.put("a/old", b"new"), store.put_if_absent("a/new", b"new")):
        with pytest.raises(TemporaryError, match="No space left"):
            await write
    monkeypatch.undo()
    assert await store.get("a/old") == b"old"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["old"]


async def test_what_a_killed_writer_left_goes_once_it_is_old(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("a/kept", b"1")
    left, in_work = (tmp_path / "a" / f".partial-{name}" for name in ("left", "in-work"))
    for path in (left, in_work):
        path.write_bytes(b"half")
    long_ago = time.time() - 25 * 3600
    os.utime(left, (long_ago, long_ago))
    os.utime(tmp_path / "a" / "kept", (long_ago, long_ago))
    assert [info.key for info in await store.list("a/")] == ["a/kept"]
    assert not left.exists()
    assert in_work.exists()


async def test_a_key_below_an_object_is_refused_in_a_directory(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("x", b"1")
    with pytest.raises(TemporaryError):
        await store.put("x/y", b"2")


async def test_an_s3_that_is_away_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    store = S3Store(s3_server.BUCKET, "", f"http://127.0.0.1:{free_port()}")
    try:
        with pytest.raises(TemporaryError):
            await store.put_if_absent("a", b"1")
    finally:
        await store.close()


def test_the_address_names_the_kind_of_store() -> None:
    assert isinstance(open_object_store("file:///var/lib/x"), DirectoryStore)
    assert isinstance(open_object_store("s3://bucket/prefix"), S3Store)


@pytest.mark.parametrize("url", ["", "/var/lib/x", "file://host/x", "s3://", "ftp://x/y"])
def test_an_address_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="DRIVETRAIN_OBJECT_STORE_URL"):
        open_object_store(url)
