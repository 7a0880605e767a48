"""One suite for the storages of the training side: a directory, and a real S3."""

import asyncio
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.session import get_session

from drivetrain.errors import StorageError
from drivetrain.s3_storage import S3Storage
from drivetrain.storage import Storage, create_storage, open_storage, open_unmarked
from drivetrain_schemas.object_store import MARKER_KEY, StoreFailure
from services.runtime.s3_store import S3Store
from services.runtime.stores import initialise
from tests import s3_server


@pytest.fixture(params=["directory", "s3"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    if request.param == "directory":
        root = tmp_path / "with a space"
        create_storage(root)
        yield open_storage(root.as_uri(), directory="checkpoints")
        return
    endpoint = request.getfixturevalue("s3").endpoint_url
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{s3_server.BUCKET}/trainer-{secrets.token_hex(4)}"
    asyncio.run(initialise(url, endpoint))
    opened = open_storage(url, endpoint, directory="checkpoints")
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


def test_what_a_killed_writer_had_uploaded_is_found_and_aborted(
    s3: s3_server.RunningS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    prefix = f"killed-{secrets.token_hex(4)}"
    writer = (
        "import os, signal\n"
        "from drivetrain import s3_storage\n"
        "s3_storage._PART_BYTES = part = 5 * 1024**2\n"
        "def pieces():\n"
        "    yield bytes(part)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"s3_storage.S3Storage({s3_server.BUCKET!r}, {prefix!r}, {s3.endpoint_url!r})"
        ".put_pieces('jobs/a/shard', pieces(), 2 * part)\n"
    )
    assert subprocess.run([sys.executable, "-c", writer], check=False).returncode == -signal.SIGKILL

    async def look() -> None:
        store = S3Store(s3_server.BUCKET, prefix, s3.endpoint_url)
        assert await store.list_uploads("jobs/b/") == []
        (upload,) = await store.list_uploads("jobs/a/")
        assert upload.key == "jobs/a/shard"
        for _ in range(2):
            await store.abort(upload)
        assert await store.list_uploads("") == []
        await store.close()

    asyncio.run(look())


def test_what_was_put_in_pieces_is_got_in_pieces(storage: Storage, monkeypatch) -> None:
    """Of more parts than one request takes; the last one is as large as a part, or smaller."""
    part = 5 * 1024 * 1024  # the least that S3 allows
    monkeypatch.setattr("drivetrain.s3_storage._PART_BYTES", part)
    monkeypatch.setattr("drivetrain.directory_storage._PIECE_BYTES", part)
    for size in (0, 1, part, 2 * part, 2 * part + 1):
        data = random.Random(size).randbytes(size)
        pieces = [data[start : start + 1_000_003] for start in range(0, size, 1_000_003)]
        storage.put_pieces("a/large", pieces, size)
        found = list(storage.get_pieces("a/large"))
        assert b"".join(found) == data
        assert all(len(piece) <= part for piece in found)
    assert storage.get_pieces("a/none") is None


def test_parts_grow_where_there_would_be_too_many(storage: Storage, monkeypatch) -> None:
    """S3 takes 10,000 parts: the parts of a very large file are larger."""
    monkeypatch.setattr("drivetrain.s3_storage._PART_BYTES", 5 * 1024 * 1024)
    monkeypatch.setattr("drivetrain.s3_storage._MAX_PARTS", 2)
    data = random.Random(1).randbytes(13_000_001)
    storage.put_pieces("a/large", [data], len(data))
    assert storage.get("a/large") == data


def test_a_failure_between_two_pieces_leaves_what_was_there(storage: Storage, monkeypatch) -> None:
    monkeypatch.setattr("drivetrain.s3_storage._PART_BYTES", 5 * 1024 * 1024)

    def pieces() -> Iterator[bytes]:
        yield bytes(6 * 1024 * 1024)
        raise StorageError("the disk is gone")

    storage.put("a/large", b"old")
    with pytest.raises(StorageError, match="the disk is gone"):
        storage.put_pieces("a/large", pieces(), 12 * 1024 * 1024)
    assert storage.list() == ["a/large"]
    assert storage.get("a/large") == b"old"


def test_an_upload_that_fails_is_aborted(s3, monkeypatch) -> None:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("drivetrain.s3_storage._PART_BYTES", 5 * 1024 * 1024)
    storage = S3Storage(s3_server.BUCKET, secrets.token_hex(4), s3.endpoint_url)

    def pieces() -> Iterator[bytes]:
        yield bytes(6 * 1024 * 1024)
        assert list_uploads(s3)
        raise StorageError("the disk is gone")

    with pytest.raises(StorageError, match="the disk is gone"):
        storage.put_pieces("large", pieces(), 12 * 1024 * 1024)
    storage.close()
    assert list_uploads(s3) == []


def list_uploads(s3: s3_server.RunningS3) -> list[str]:
    client = get_session().create_client("s3", endpoint_url=s3.endpoint_url)
    answer = client.list_multipart_uploads(Bucket=s3_server.BUCKET)
    client.close()
    return [upload["Key"] for upload in answer.get("Uploads", ())]


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


def test_a_directory_that_was_moved_is_unavailable_and_not_created_again(tmp_path: Path) -> None:
    root = tmp_path / "objects"
    create_storage(root)
    storage = open_storage(root.as_uri(), directory="checkpoints")
    storage.put("a/one", b"1")
    root.rename(tmp_path / "moved")
    for call in (
        lambda: storage.put("a/two", b"2"),
        lambda: storage.put_if_absent("a/two", b"2"),
        lambda: storage.get("a/one"),
        storage.list,
        lambda: storage.delete("a/one"),
        lambda: open_unmarked(root.as_uri()).put("a/two", b"2"),
    ):
        with pytest.raises(StorageError) as refused:
            call()
        assert refused.value.failure is StoreFailure.UNAVAILABLE
    assert not root.exists()
    (tmp_path / "moved").rename(root)
    assert storage.list() == ["a/one"]


@pytest.mark.parametrize("store_id", [None, "0" * 32])
def test_an_empty_directory_or_another_store_in_its_place_is_unavailable(
    tmp_path: Path, store_id: str | None
) -> None:
    create_storage(tmp_path / "objects")
    if store_id is None:
        (tmp_path / "objects" / MARKER_KEY).unlink()
    storage = open_storage((tmp_path / "objects").as_uri(), store_id=store_id)
    with pytest.raises(StorageError, match="unavailable"):
        storage.list()
    with pytest.raises(StorageError, match="unavailable"):
        storage.put("a", b"1")


@pytest.mark.heavy
def test_an_unavailable_s3_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    away = S3Storage("bucket", "", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match="one"):
        away.get("one")
    away.close()
