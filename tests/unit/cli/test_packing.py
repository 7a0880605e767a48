"""Packing code: the same files give the same bytes, and nothing is left out silently."""

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from drivetrain.cli import packing
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.ignoring import ENVIRONMENT, SECRETS
from drivetrain.cli.packing import LeftOut, pack


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


def test_what_git_ignores_is_left_out_and_reported(tmp_path: Path) -> None:
    """The oracle is git: it lists exactly the files that are packed."""
    write(
        tmp_path,
        {
            ".gitignore": "*.bin\n!keep.bin\n/out/\ndata/*\n!data/small.csv\n**/logs/*.txt\n#x\n",
            "train.py": "",
            "a.bin": "",
            "keep.bin": "",
            "out/1": "",
            "lib/out/2": "",
            "data/large.csv": "",
            "data/small.csv": "",
            "lib/logs/a.txt": "",
            "lib/logs/a.md": "",
            "lib/.gitignore": "secret.py\n!/more.bin\n",
            "lib/secret.py": "",
            "lib/more.bin": "",
            "lib/deep/more.bin": "",
        },
    )
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    listed = subprocess.run(
        ["git", "-C", tmp_path, "ls-files", "-co", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    package = pack(tmp_path)
    assert sorted(names(package.content)) == sorted(listed.stdout.splitlines())
    assert "lib/more.bin" in names(package.content)
    assert LeftOut("out/", ".gitignore") in package.left_out


def test_the_ignore_files_above_count_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "*.py\n",
            "repository/.git/HEAD": "",
            "repository/.gitignore": "job/data/\n*.log\nbuild/\n",
            "repository/job/train.py": "",
            "repository/job/a.log": "",
            "repository/job/data/x": "",
            "repository/build/train.py": "",
        },
    )
    assert names(pack(tmp_path / "repository" / "job").content) == ["train.py"]
    # Named on purpose, though the repository ignores it.
    assert names(pack(tmp_path / "repository" / "build").content) == ["train.py"]


def test_secrets_and_environments_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    files = {
        "train.py": "",
        ".env": "PASSWORD=1",
        ".env.local": "",
        ".env.example": "",
        "venv/bin/python": "",
        "my-python/pyvenv.cfg": "",
        "my-python/lib/x.py": "",
        "conda/conda-meta/history": "",
        ".gitignore": "data/\n",
        "data/x.csv": "",
    }
    package = pack(write(tmp_path, files))
    assert names(package.content) == [".env.example", ".gitignore", "train.py"]
    assert {one.path: one.reason for one in package.left_out} == {
        ".env": SECRETS,
        ".env.local": SECRETS,
        "conda/": ENVIRONMENT,
        "data/": ".gitignore",
        "my-python/": ENVIRONMENT,
        "venv/": ENVIRONMENT,
    }
    write(tmp_path, {".drivetrainignore": "!.env\n!data/\n!my-python/\n"})
    sent = names(pack(tmp_path).content)
    assert {".env", "data/x.csv", "my-python/lib/x.py"} < set(sent)
    assert "venv/bin/python" not in sent


def test_a_link_to_a_file_is_packed_as_the_file(tmp_path: Path) -> None:
    write(tmp_path, {"outside.py": "x = 1", "code/train.py": ""})
    (tmp_path / "code" / "linked.py").symlink_to(tmp_path / "outside.py")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path / "code").content)) as archive:
        member = archive.getmember("linked.py")
        assert member.isfile()
        assert member.size == 5


def test_a_link_to_a_directory_outside_is_packed_as_its_files(tmp_path: Path) -> None:
    write(tmp_path, {"common/model.py": "", "common/.env": "", "code/train.py": ""})
    (tmp_path / "code" / "lib").symlink_to(tmp_path / "common")
    (tmp_path / "code" / "loop").symlink_to(tmp_path / "code")
    package = pack(tmp_path / "code")
    assert names(package.content) == ["lib/model.py", "train.py"]
    assert package.left_out == (LeftOut("lib/.env", SECRETS), LeftOut("loop/", packing.LOOP))


def test_a_link_to_much_data_is_left_out_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_LINKED_BYTES", 10)
    write(tmp_path, {"data/a": "123456", "data/b": "123456", "code/train.py": "x" * 20})
    (tmp_path / "code" / "data").symlink_to(tmp_path / "data")
    (tmp_path / "large").write_text("x" * 11)
    (tmp_path / "code" / "large").symlink_to(tmp_path / "large")
    package = pack(tmp_path / "code")
    assert names(package.content) == ["train.py"]
    assert [one.path for one in package.left_out] == ["data/", "large"]
    assert "by its full path" in package.left_out[0].reason


def test_what_is_no_file_is_left_out_and_reported(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": ""})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    package = pack(tmp_path)
    assert names(package.content) == ["train.py"]
    assert package.left_out == (
        LeftOut("gone", packing.NO_TARGET),
        LeftOut("pipe", packing.NOT_A_FILE),
    )


def test_an_empty_or_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no files"):
        pack(tmp_path)
    with pytest.raises(InvalidInput, match="is not a directory"):
        pack(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("bound", "want"),
    [
        ("MAX_FILES", "holds more than 1 files"),
        ("MAX_UNPACKED_BYTES", r"holds 12 bytes \(at most 1\)"),
        ("MAX_PACKED_BYTES", "packs to more than 1 bytes"),
    ],
)
def test_limits_are_reported_with_the_largest_part_and_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, want: str
) -> None:
    monkeypatch.setattr(packing, bound, 1)
    write(tmp_path, {"a.py": "1234", "data/b": "1234", "data/c": "1234"})
    with pytest.raises(InvalidInput, match=want) as refusal:
        pack(tmp_path)
    assert ".drivetrainignore" in refusal.value.fix
    if bound != "MAX_FILES":
        assert str(refusal.value.problems[0]) == "data/ has 8 B"


def test_what_is_too_large_is_refused_before_any_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def must_not_be_called(*_: object) -> bytes:
        raise AssertionError("the files were compressed before the limit was checked")

    monkeypatch.setattr(packing, "_compressed", must_not_be_called)
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(packing.MAX_UNPACKED_BYTES + 1)  # holes: it takes no space
    with pytest.raises(InvalidInput, match="holds 536,870,913 bytes"):
        pack(tmp_path)


def test_compression_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_PACKED_BYTES", 100_000)
    num_packed = 0

    def count(archive: tarfile.TarFile, file: packing._File) -> None:
        nonlocal num_packed
        num_packed += 1
        add(archive, file)

    add = packing._add
    monkeypatch.setattr(packing, "_add", count)
    for number in range(50):
        (tmp_path / f"{number:02}.bin").write_bytes(os.urandom(20_000))
    with pytest.raises(InvalidInput, match="packs to more than 100,000 bytes"):
        pack(tmp_path)
    assert num_packed < 10
