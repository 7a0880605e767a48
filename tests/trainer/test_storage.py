"""A directory as object store: whole or not at all."""

from pathlib import Path

import pytest

from drivetrain.errors import StorageError
from drivetrain.storage import DirectoryStorage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    opened = open_storage((tmp_path / "with a space").as_uri())
    assert isinstance(opened, DirectoryStorage)
    return opened


def test_what_was_put_is_got_and_listed(storage: DirectoryStorage) -> None:
    storage.put("a/one", b"1")
    storage.put("a/two", b"2")
    storage.put("b/one", b"3")
    assert storage.get("a/two") == b"2"
    assert storage.list() == ["a/one", "a/two", "b/one"]
    assert storage.list("a/t") == ["a/two"]
    assert storage.list("c/") == []


def test_what_is_not_there_is_none(storage: DirectoryStorage) -> None:
    assert storage.get("a/one") is None
    storage.put("file", b"")
    assert storage.get("file/below") is None


def test_only_the_first_puts_if_absent(storage: DirectoryStorage) -> None:
    assert storage.put_if_absent("a/manifest.json", b"first")
    assert not storage.put_if_absent("a/manifest.json", b"second")
    assert storage.get("a/manifest.json") == b"first"
    assert storage.list() == ["a/manifest.json"]


def test_deleted_is_gone_and_may_be_deleted_again(storage: DirectoryStorage) -> None:
    storage.put("a/one", b"1")
    storage.delete("a/one")
    storage.delete("a/one")
    assert storage.list() == []


def test_what_the_disk_refuses_is_a_storage_error(storage: DirectoryStorage) -> None:
    storage.put("file", b"")
    with pytest.raises(StorageError, match="file/below"):
        storage.put("file/below", b"")


def test_a_write_that_breaks_off_leaves_nothing(storage: DirectoryStorage, monkeypatch) -> None:
    storage.put("a/one", b"old")

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(StorageError, match="No space left"):
        storage.put("a/one", b"new")
    assert storage.get("a/one") == b"old"
    assert storage.list() == ["a/one"]


def test_other_addresses_are_refused() -> None:
    with pytest.raises(StorageError, match="file:///directory or s3://bucket"):
        open_storage("ftp://somewhere")
