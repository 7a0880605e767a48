"""Archives are untrusted data."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain.errors import StorageError
from drivetrain.pod import code
from drivetrain.storage import create_storage
from drivetrain_schemas.jobs import Code
from drivetrain_schemas.pods import PodSpec


def archive(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return buffer.getvalue()


def member(name: str, size: int = 1, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def test_files_are_unpacked(tmp_path: Path) -> None:
    code.unpack(archive(member("train.py"), member("package/data.txt")), tmp_path / "code")
    assert (tmp_path / "code" / "package" / "data.txt").read_bytes() == b"x"


@pytest.mark.parametrize(
    "evil",
    [
        pytest.param(member("../outside"), id="above"),
        pytest.param(member("a/../../outside"), id="above, hidden"),
        pytest.param(member("link", 0, type=tarfile.SYMTYPE, linkname="/etc"), id="absolute link"),
        pytest.param(member("link", 0, type=tarfile.SYMTYPE, linkname="../.."), id="link above"),
        pytest.param(member("link", 0, type=tarfile.LNKTYPE, linkname="../x"), id="hard link"),
        pytest.param(member("device", 0, type=tarfile.CHRTYPE), id="device"),
        pytest.param(member("pipe", 0, type=tarfile.FIFOTYPE), id="pipe"),
    ],
)
def test_paths_outside_the_directory_are_refused(tmp_path: Path, evil: tarfile.TarInfo) -> None:
    target = tmp_path / "deep" / "code"
    with pytest.raises(code.InvalidCode):
        code.unpack(archive(evil), target)
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "deep" / "outside").exists()


def test_an_absolute_path_is_unpacked_inside_the_directory(tmp_path: Path) -> None:
    code.unpack(archive(member("/train.py")), tmp_path / "code")
    assert (tmp_path / "code" / "train.py").exists()


def headers_without_end() -> bytes:
    """Each header announces a long name for the next one, and there is no member."""
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type = tarfile.GNUTYPE_LONGNAME
    long_name.size = 1
    header = long_name.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
    return gzip.compress(header * 1500)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no archive", id="no archive"),
        pytest.param(gzip.compress(b"no tar"), id="no tar"),
        pytest.param(archive(member("a"))[:40], id="cut"),
        pytest.param(headers_without_end(), id="headers without end"),
    ],
)
def test_an_invalid_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(code.InvalidCode):
        code.unpack(data, tmp_path / "code")


def test_an_archive_that_unpacks_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(code.InvalidCode, match="1000 bytes"):
        code.unpack(archive(member("a", 600), member("b", 600)), tmp_path / "code")
    assert not (tmp_path / "code").exists()


def spec_of(store: Path, *code_urls: str) -> PodSpec:
    return PodSpec.model_construct(
        object_store_url=store.as_uri(),
        object_store_endpoint_url=None,
        object_store_id=None,
        code_urls=code_urls,
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create_storage(tmp_path / "objects")
    return tmp_path / "objects"


def put(path: Path) -> Code:
    data = archive(member("train.py"))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return Code(uri=path.as_uri(), sha256=hashlib.sha256(data).hexdigest())


def test_code_comes_from_the_object_store_or_an_allowed_location(tmp_path: Path, store: Path):
    inside, outside = put(store / "code/a.tar.gz"), put(tmp_path / "builds/b.tar.gz")
    code.fetch(inside, spec_of(store), tmp_path / "first")
    here = inside.model_copy(update={"uri": "store:code/a.tar.gz"})
    moved = store.rename(tmp_path / "moved")
    code.fetch(here, spec_of(moved), tmp_path / "moved-code")
    moved.rename(store)
    code.fetch(outside, spec_of(store, (tmp_path / "builds").as_uri()), tmp_path / "second")
    for name in ("first", "second"):
        assert (tmp_path / name / "train.py").exists()


@pytest.mark.parametrize(
    "uri",
    [
        "file:///dev/zero",
        "file://{store}-other/b.tar.gz",
        "file://{store}/code/../../secret",
        "file://{store}/./secret",
        "file://{store}//secret",
        "store:code/../../secret",
        "store:/secret",
        "s3://elsewhere/code.tar.gz",
    ],
)
def test_any_other_location_is_refused_without_reading(
    tmp_path: Path, store: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "secret")
    monkeypatch.setattr(code, "open_unmarked", None)
    monkeypatch.setattr(code, "open_storage", None)
    named = Code(uri=uri.format(store=store), sha256="0" * 64)
    with pytest.raises(code.InvalidCode, match="DRIVETRAIN_CODE_URLS"):
        code.fetch(named, spec_of(store), tmp_path / "code")


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 1024**4)


@pytest.mark.parametrize("make", [make_device, os.mkfifo, Path.mkdir, make_sparse])
def test_only_regular_files_of_a_bounded_size_are_read(
    tmp_path: Path, store: Path, make: Callable[[Path], None]
) -> None:
    make(store / "code.tar.gz")
    named = Code(uri=(store / "code.tar.gz").as_uri(), sha256="0" * 64)
    with pytest.raises(StorageError):
        code.fetch(named, spec_of(store), tmp_path / "code")
