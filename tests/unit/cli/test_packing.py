"""Packing code: the same files give the same bytes, and nothing is left out silently."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from drivetrain.cli import packing
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.packing import pack


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return archive.getnames()


def test_equal_files_give_equal_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    files = {"train.py": "print(1)", "lib/a.py": "", "lib/b.py": ""}
    one = write(tmp_path / "one", files)
    other = write(tmp_path / "other", dict(reversed(files.items())))
    os.utime(other / "train.py", (1, 1))
    first, second = pack(one), pack(other)
    assert first == second
    assert first.sha256 == hashlib.sha256(first.content).hexdigest()
    assert names(first.content) == ["lib/a.py", "lib/b.py", "train.py"]
    (other / "train.py").write_text("print(2)")
    assert pack(other).sha256 != first.sha256


def test_contents_and_the_executable_bit_are_kept_and_owners_are_not(tmp_path: Path) -> None:
    write(tmp_path, {"run.sh": "echo", "data.txt": "x"})
    (tmp_path / "run.sh").chmod(0o750)
    (tmp_path / "data.txt").chmod(0o600)
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path).content)) as archive:
        script, data = archive.getmember("run.sh"), archive.getmember("data.txt")
        assert (script.mode, data.mode) == (0o755, 0o644)
        assert (script.uid, script.gid, script.uname, script.mtime) == (0, 0, "", 0)
        extracted = archive.extractfile("data.txt")
        assert extracted is not None
        assert extracted.read() == b"x"


def test_files_that_no_job_needs_are_left_out(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "train.py": "",
            ".git/config": "",
            ".venv/bin/python": "",
            "__pycache__/a.pyc": "",
            "lib/__pycache__/b.pyc": "",
            "runs/1/log": "",
            "lib/runs/kept.py": "",
        },
    )
    assert names(pack(tmp_path).content) == ["lib/runs/kept.py", "train.py"]


def test_an_ignore_file_leaves_out_more(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".drivetrainignore": "# data\n*.bin\n/notes/\nlib/private.py\nbuild/\n",
            "train.py": "",
            "weights.bin": "",
            "lib/more.bin": "",
            "lib/private.py": "",
            "other/private.py": "",
            "notes/a.txt": "",
            "lib/notes/b.txt": "",
            "build": "a file of this name stays",
        },
    )
    want = [".drivetrainignore", "build", "lib/notes/b.txt", "other/private.py", "train.py"]
    assert names(pack(tmp_path).content) == want


def test_an_exception_in_the_ignore_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {".drivetrainignore": "*.bin\n!keep.bin\n", "train.py": ""})
    with pytest.raises(InvalidInput, match=r"\.drivetrainignore:2"):
        pack(tmp_path)


def test_a_link_to_a_file_is_packed_as_the_file(tmp_path: Path) -> None:
    write(tmp_path, {"outside.py": "x = 1", "code/train.py": ""})
    (tmp_path / "code" / "linked.py").symlink_to(tmp_path / "outside.py")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path / "code").content)) as archive:
        member = archive.getmember("linked.py")
        assert member.isfile()
        assert member.size == 5


def test_a_file_that_cannot_be_packed_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"code/train.py": "", "data/huge": ""})
    (tmp_path / "code" / "data").symlink_to(tmp_path / "data")
    with pytest.raises(InvalidInput, match="link to a directory"):
        pack(tmp_path / "code")
    (tmp_path / "code" / "data").unlink()
    os.mkfifo(tmp_path / "code" / "pipe")
    with pytest.raises(InvalidInput, match="neither a file nor a directory"):
        pack(tmp_path / "code")
    (tmp_path / "code" / "pipe").unlink()
    (tmp_path / "code" / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"cannot read .*gone"):
        pack(tmp_path / "code")


def test_an_empty_or_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no files"):
        pack(tmp_path)
    with pytest.raises(InvalidInput, match="is not a directory"):
        pack(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("bound", "want"),
    [
        ("MAX_FILES", "holds more than 1 files"),
        ("MAX_UNPACKED_BYTES", "has more than 1 bytes at"),
        ("MAX_PACKED_BYTES", "packs to"),
    ],
)
def test_limits_are_reported_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, want: str
) -> None:
    monkeypatch.setattr(packing, bound, 1)
    write(tmp_path, {"a.py": "1234", "b.py": "1234"})
    with pytest.raises(InvalidInput, match=want) as refusal:
        pack(tmp_path)
    assert ".drivetrainignore" in refusal.value.fix
