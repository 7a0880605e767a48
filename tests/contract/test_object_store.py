"""The object store's contract: in memory, in a directory, and on a real S3 server."""

import asyncio
import contextlib
import errno
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from drivetrain_schemas.object_store import MARKER_KEY, StoreFailure
from services.runtime.directory_store import DirectoryStore
from services.runtime.errors import ConfigurationError, StoreError
from services.runtime.object_store import (
    CHUNK_BYTES,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
)
from services.runtime.s3_store import S3Store
from services.runtime.stores import initialise, open_object_store
from services.standalone.ports import free_port
from tests import s3_server
from tests.fakes import InMemoryObjectStore
from tests.object_stores import opened_store

pytestmark = pytest.mark.timeout(s3_server.BUILD_SECONDS + 60)


@pytest_asyncio.fixture(params=["memory", "directory", "s3"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ObjectStore]:
    if request.param == "memory":
        yield InMemoryObjectStore()
        return
    async with opened_store(request.param, request, tmp_path, monkeypatch) as opened:
        yield opened


def open_bare(url: str, endpoint: str | None) -> ObjectStore:
    """Without the check for its marker."""
    if endpoint is None:
        return DirectoryStore(Path(url.removeprefix("file://")))
    return S3Store(s3_server.BUCKET, url.rpartition("/")[2], endpoint)


@pytest.fixture(params=["directory", "s3"])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str | None]:
    """The address of a store that was never initialised."""
    if request.param == "directory":
        (tmp_path / "objects").mkdir()
        return (tmp_path / "objects").as_uri(), None
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    endpoint = request.getfixturevalue("s3").endpoint_url
    return f"s3://{s3_server.BUCKET}/prefix-{secrets.token_hex(4)}", endpoint


async def test_what_is_put_is_got(store: ObjectStore) -> None:
    await store.put("a/b.bin", b"\x00\xffcontent")
    assert await store.get("a/b.bin") == b"\x00\xffcontent"


async def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    await store.put("empty", b"")
    assert await store.get("empty") == b""
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


async def test_a_range_of_an_object_is_read_alone(store: ObjectStore) -> None:
    content = secrets.token_bytes(CHUNK_BYTES + 17)
    await store.put("a/large", content)
    assert await store.get_range("a/large", 0, 4) == content[:4]
    assert await store.get_range("a/large", 100, 3000) == content[100:3000]
    assert await store.get_range("a/large", CHUNK_BYTES, CHUNK_BYTES * 2) == content[CHUNK_BYTES:]
    with pytest.raises(NoSuchObject):
        await store.get_range("a/nothing", 0, 4)


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "/etc/passwd"])
async def test_no_key_leads_out_of_the_directory(tmp_path: Path, key: str) -> None:
    store = DirectoryStore(tmp_path / "objects")
    (tmp_path / "outside").write_bytes(b"secret")
    for call in (store.get(key), store.put(key, b"x"), store.delete(key)):
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
        with pytest.raises(StoreError, match="No space left"):
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


async def test_a_file_in_the_place_of_a_directory_is_not_an_empty_one(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("a", b"1")
    with pytest.raises(StoreError):
        await store.list("a/")


async def test_a_key_below_an_object_is_refused_in_a_directory(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("x", b"1")
    with pytest.raises(StoreError):
        await store.put("x/y", b"2")


@pytest.mark.heavy
async def test_an_unavailable_s3_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    store = S3Store(s3_server.BUCKET, "", f"http://127.0.0.1:{free_port()}")
    try:
        with pytest.raises(StoreError):
            await store.put_if_absent("a", b"1")
    finally:
        await store.close()


async def test_the_marker_is_written_once_and_is_no_object_of_the_store(
    store_url: tuple[str, str | None],
) -> None:
    url, endpoint = store_url
    store_id = await initialise(url, endpoint)
    assert await initialise(url, endpoint) == store_id
    store = open_object_store(url, endpoint, store_id)
    assert await store.list("") == []
    await store.put("a", b"1")
    assert await store.get("a") == b"1"
    await store.close()


async def refusals(store: ObjectStore) -> list[StoreFailure]:
    """What every call of the store answers."""
    failures = []
    for call in (
        store.put("a/b", b"1"),
        store.put_if_absent("a/c", b"1"),
        store.get("a/b"),
        anext(store.stream("a/b")),
        store.list("a/"),
        store.delete("a/b"),
    ):
        with pytest.raises(StoreError) as refused:
            await call
        failures.append(refused.value.failure)
    return failures


async def test_a_store_without_its_marker_is_unavailable_and_not_empty(
    store_url: tuple[str, str | None],
) -> None:
    store = open_object_store(*store_url)
    assert set(await refusals(store)) == {StoreFailure.UNAVAILABLE}
    await store.close()


async def test_another_store_in_the_place_of_the_expected_one_is_unavailable(
    store_url: tuple[str, str | None],
) -> None:
    await initialise(*store_url)
    store = open_object_store(*store_url, store_id="0" * 32)
    assert set(await refusals(store)) == {StoreFailure.UNAVAILABLE}
    await store.close()


async def test_a_store_that_loses_its_marker_does_not_answer_that_something_is_absent(
    store_url: tuple[str, str | None],
) -> None:
    """Though a store on the network is not asked for its marker before each call."""
    await initialise(*store_url)
    store = open_object_store(*store_url)
    await store.put("a/b", b"1")
    bare = open_bare(*store_url)
    await bare.delete(MARKER_KEY)
    await bare.delete("a/b")
    for call in (store.get("a/b"), store.list("a/")):
        with pytest.raises(StoreError):
            await call
    await bare.close()
    await store.close()


async def test_a_directory_that_was_moved_is_not_created_again(tmp_path: Path) -> None:
    root = tmp_path / "objects"
    store_id = await initialise(root.as_uri())
    store = open_object_store(root.as_uri(), store_id=store_id)
    await store.put("a/b", b"1")
    root.rename(tmp_path / "moved")
    assert set(await refusals(store)) == {StoreFailure.UNAVAILABLE}
    with pytest.raises(StoreError):
        await DirectoryStore(root).put("a/b", b"2")
    assert not root.exists()
    (tmp_path / "moved").rename(root)
    assert await store.get("a/b") == b"1"


async def test_a_directory_that_was_deleted_from_leaves_no_empty_ones(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("a/b/c/one", b"1")
    await store.put("a/two", b"2")
    await store.delete("a/b/c/one")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["two"]
    await store.delete("a/two")
    assert os.listdir(tmp_path) == []


async def test_writes_beside_deletions_in_one_directory_all_succeed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)

    async def write_and_delete(number: int) -> None:
        for _ in range(50):
            await store.put(f"a/b/{number}", b"1")
            await store.delete(f"a/b/{number}")

    await asyncio.gather(*(write_and_delete(number) for number in range(4)))
    assert await store.list("") == []


async def test_a_directory_made_and_removed_by_others_meanwhile_fails_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = os.mkdir, [1]

    def mkdir(path: Path, *arguments: int, **options: int) -> None:
        if others:
            others.pop()
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        real(path, *arguments, **options)

    store = DirectoryStore(tmp_path)
    monkeypatch.setattr(os, "mkdir", mkdir)
    await store.put("a/b", b"1")
    assert await store.get("a/b") == b"1"
    assert not others


@pytest.mark.parametrize("is_directory", [False, True], ids=["of an object", "of its directory"])
async def test_no_link_leads_out_of_a_directory(tmp_path: Path, is_directory: bool) -> None:
    """Programs of jobs write there, and what the services read is shown to others."""
    store, outside = DirectoryStore(tmp_path / "objects"), tmp_path / "outside"
    await store.create_root()
    await store.put("job/kept", b"1")
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    place = tmp_path / "objects/job/dir"
    if is_directory:
        place.symlink_to(outside)
    else:
        place.mkdir()
        (place / "secret").symlink_to(outside / "secret")
    key = "job/dir/secret"
    for read in (store.get(key), store.get_range(key, 0, 3), anext(store.stream(key))):
        with pytest.raises(NoSuchObject):
            await read
    assert [item.key for item in await store.list("job/")] == ["job/kept"]
    await store.delete(key)
    with contextlib.suppress(StoreError):
        await store.put(key, b"mine")
    assert (outside / "secret").read_bytes() == b"secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]


async def test_a_directory_that_cannot_be_read_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("a/b", b"1")

    def refuse(path: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError, match="Input/output error"):
        await store.list("a/")


@pytest.mark.parametrize(
    ("number", "failure"),
    [
        (errno.ENOSPC, StoreFailure.FULL),
        (errno.EROFS, StoreFailure.READ_ONLY),
        (errno.EIO, StoreFailure.ERROR),
    ],
)
async def test_a_failure_says_what_is_wrong_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, failure: StoreFailure
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="object store") as refused:
        await DirectoryStore(tmp_path).put("a", b"1")
    assert refused.value.failure is failure
    assert refused.value.part == "object store"


@pytest.mark.parametrize("url", ["", "/var/lib/x", "file://host/x", "s3://", "ftp://x/y"])
def test_an_address_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="DRIVETRAIN_OBJECT_STORE_URL"):
        open_object_store(url)
