"""A directory as object store; the tests shared with S3 are in tests/contract."""

import os
from pathlib import Path

import pytest

from drivetrain.directory_storage import DirectoryStorage
from drivetrain.errors import StorageError
from drivetrain.storage import open_storage


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    (tmp_path / "with a space").mkdir()
    return DirectoryStorage(tmp_path / "with a space")


def test_an_error_of_the_disk_is_a_storage_error(storage: DirectoryStorage) -> None:
    storage.put("file", b"")
    with pytest.raises(StorageError, match="file/below"):
        storage.put("file/below", b"")


def test_an_incomplete_write_leaves_no_file(storage: DirectoryStorage, monkeypatch) -> None:
    storage.put("a/one", b"old")

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(StorageError, match="No space left"):
        storage.put("a/one", b"new")
    assert storage.get("a/one") == b"old"
    assert storage.list() == ["a/one"]


def test_each_directory_that_is_made_is_synced_into_the_one_above(
    storage: DirectoryStorage, tmp_path: Path, monkeypatch
) -> None:
    synced = set()
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", watch)
    storage.put("a/b/c", b"")
    root = tmp_path / "with a space"
    assert {root, root / "a", root / "a" / "b"} <= synced


def test_other_addresses_are_refused() -> None:
    with pytest.raises(StorageError, match="file:///directory or s3://bucket"):
        open_storage("ftp://somewhere")
