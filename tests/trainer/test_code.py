"""Archives are data from outside."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from drivetrain.pod import code


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
def test_what_would_reach_outside_is_refused(tmp_path: Path, evil: tarfile.TarInfo) -> None:
    target = tmp_path / "deep" / "code"
    with pytest.raises(code.InvalidCode):
        code.unpack(archive(evil), target)
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "deep" / "outside").exists()


def test_an_absolute_name_stays_inside(tmp_path: Path) -> None:
    code.unpack(archive(member("/train.py")), tmp_path / "code")
    assert (tmp_path / "code" / "train.py").exists()


def headers_without_end() -> bytes:
    """Each header says that the next one's name is long, and no member ever comes."""
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type = tarfile.GNUTYPE_LONGNAME
    long_name.size = 1
    header = long_name.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
    return gzip.compress(header * 1500)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        gzip.compress(b"no tar"),
        archive(member("a"))[:40],
        pytest.param(headers_without_end(), id="headers without end"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(code.InvalidCode):
        code.unpack(data, tmp_path / "code")


def test_what_unfolds_too_far_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(code.InvalidCode, match="1000 bytes"):
        code.unpack(archive(member("a", 600), member("b", 600)), tmp_path / "code")
    assert not (tmp_path / "code").exists()
