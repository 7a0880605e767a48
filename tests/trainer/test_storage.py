"""A directory as object store; what it shares with S3 is in tests/contract."""

from pathlib import Path

import pytest

from drivetrain.errors import StorageError
from drivetrain.storage import DirectoryStorage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    opened = open_storage((tmp_path / "with a space").as_uri())
    assert isinstance(opened, DirectoryStorage)
    return opened


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
