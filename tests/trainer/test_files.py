"""Saving and putting back whatever programs leave in a directory."""

import errno
import mmap
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from drivetrain.errors import StorageError
from drivetrain.files import layout, saving, scanning
from drivetrain.files.complaints import Complaints
from drivetrain.files.record import Record, read_record
from drivetrain.files.saving import FileSaver, Saved
from drivetrain.files.scanning import LeftOut, Limits
from drivetrain.storage import MarkedStorage, create_storage
from drivetrain_schemas.ids import job_id_for, run_id_for
from drivetrain_schemas.job_files import PART_BYTES, FileList, JobLink

JOB = job_id_for("default", "files")
BY = Saved("default", JOB, run_id_for(JOB, 1), 1, 1)


class Place:
    """A working directory, and a store to save it in."""

    def __init__(self, root: Path, record: Record | None = None, **limits: int) -> None:
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)
        self.objects = root / "objects"
        self.storage: MarkedStorage = create_storage(self.objects)
        self.saver = FileSaver(
            self.work, root / "spool", self.storage, record or Record(), Limits(**limits)
        )

    def write(self, path: str, content: bytes = b"x") -> Path:
        target = self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        # As if it had been written a while ago: its times tell of every further change.
        os.utime(target, ns=(10**18, 10**18))
        return target

    def save(self) -> FileList:
        captured = self.saver.capture()
        stored = self.saver.write(captured, BY)
        self.saver.written(captured, stored)
        return stored

    def blobs(self) -> set[str]:
        return {path.name for path in self.objects.glob("blobs/*")}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(saving, "_SETTLED_NS", 0)  # no test changes a file within a tick
    return Place(tmp_path)


def paths(stored: FileList) -> list[str]:
    return [file.path for file in stored.files]


def test_saved_files_are_put_back(place: Place, tmp_path: Path) -> None:
    large = os.urandom(PART_BYTES + 100)
    place.write("out/large", large).chmod(0o750)
    place.write("empty", b"")
    (place.work / "link").symlink_to("out/large")
    stored = place.save()
    other = tmp_path / "other"
    other.mkdir()
    lost: dict[str, str] = {}
    layout.put_back(other, stored, place.storage, lost)
    assert lost == {}
    assert (other / "link").read_bytes() == large
    assert (other / "empty").read_bytes() == b""
    status = (other / "out/large").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o750, 10**18)


def test_what_is_neither_file_nor_inner_link_is_left_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("good")
    os.mkfifo(place.work / "pipe")
    (place.work / "out").symlink_to("/etc")
    (place.work / "up").symlink_to("../objects")
    place.write("dir/kept")
    (place.work / "dir/loop").symlink_to("../dir")
    with open(os.fsencode(place.work) + b"/\xff\xfe", "wb"):
        pass
    place.write("__pycache__/train.pyc")
    address = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(place.work)
    address.bind("socket")
    stored = place.save()
    address.close()
    assert paths(stored) == ["dir/kept", "good"]
    assert [(link.path, link.target) for link in stored.links] == [("dir/loop", "../dir")]
    assert stored.summary.num_left_out == 5
    assert any("\\xff\\xfe" in one for one in stored.summary.left_out)


def test_what_is_left_out_is_shown_on_one_line_without_control_characters() -> None:
    left_out = LeftOut()
    left_out.add("two\nlines\x1b[2J", "why")
    assert left_out.examples == [r"two\nlines\x1b[2J: why"]
    (line,) = Complaints().new(left_out)
    assert line == r"1 of the job's files not saved, such as two\nlines\x1b[2J: why"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"num_files": 2}, "more than 2 files"),
        ({"file_bytes": 5}, "more than 5 bytes"),
        ({"total_bytes": 9}, "more than 9 bytes"),
    ],
)
def test_over_a_bound_what_is_nearest_to_the_top_is_kept(
    tmp_path: Path, limits: dict[str, int], reason: str
) -> None:
    place = Place(tmp_path, **limits)
    place.write("data/deep/large", b"123456789")
    place.write("log", b"1234")
    place.write("model", b"12345")
    stored = place.save()
    assert paths(stored) == ["log", "model"]
    assert (stored.summary.num_left_out, stored.summary.left_out[0]) == (
        1,
        f"data/deep/large: {stored.summary.left_out[0].partition(': ')[2]}",
    )
    assert reason in stored.summary.left_out[0]


def test_more_entries_than_are_looked_at_are_reported_once(tmp_path: Path) -> None:
    place = Place(tmp_path, num_entries=3)
    for number in range(5):
        place.write(f"file{number}")
    captured = place.saver.capture()
    assert len(captured.copies) == 3
    complaints = Complaints()
    (line,) = complaints.new(captured.left_out)
    assert "more than 3 files" in line
    assert complaints.new(captured.left_out) == []
    (line,) = complaints.new(LeftOut())
    assert line.startswith("files are saved again that were not because there are more than 3")


def test_a_file_without_space_for_a_copy_keeps_its_last_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("model", b"first")
    place.write("small", b"1")
    first = place.save()
    place.write("model", b"the second")
    place.write("small", b"2")
    copy_bytes = saving._copy_bytes

    def copy_while_there_is_space(source: int, target: int, size: int) -> None:
        if size > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        copy_bytes(source, target, size)

    monkeypatch.setattr(saving, "_copy_bytes", copy_while_there_is_space)
    second = place.save()
    assert second.files[0] == first.files[0]
    assert second.files[1] != first.files[1]
    (example,) = second.summary.left_out
    assert example.startswith("model: no copy of it can be made (No space left on device)")
    monkeypatch.undo()
    assert place.save().files[0].size_bytes == len(b"the second")


def test_a_spool_that_cannot_be_made_costs_only_what_changed(place: Place) -> None:
    place.write("model", b"first")
    first = place.save()
    place.write("model", b"second")
    (place.work.parent / "spool").write_text("in the way")
    second = place.save()
    assert (second.files, second.summary.num_left_out) == (first.files, 1)
    (place.work.parent / "spool").unlink()
    assert place.save().files != first.files


def test_only_what_changed_is_copied_and_uploaded(place: Place) -> None:
    place.write("same", b"same")
    place.write("grows", b"1")
    place.save()
    first = place.blobs()
    assert place.saver.capture().copies == ()
    place.write("grows", b"12")
    place.write("twin", b"same")
    captured = place.saver.capture()
    assert [copy.seen.path for copy in captured.copies] == ["grows", "twin"]
    stored = place.saver.write(captured, BY)
    assert len(place.blobs() - first) == 1, "equal content is stored once"
    assert paths(stored) == ["grows", "same", "twin"]


def test_a_change_that_restores_size_and_time_is_seen(place: Place) -> None:
    target = place.write("model", b"old")
    place.save()
    place.write("model", b"new")
    assert target.stat().st_mtime_ns == 10**18
    (file,) = place.save().files
    assert file.sha256 == saving.hashlib.sha256(b"new").hexdigest()


def test_a_file_that_is_written_to_all_the_time_keeps_its_last_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("model", b"whole")
    first = place.save()
    place.write("model", b"next ")
    copy_bytes = saving._copy_bytes

    def write_meanwhile(source: int, target: int, size: int) -> None:
        copy_bytes(source, target, size)
        with (place.work / "model").open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(saving, "_TRY_AGAIN_SECONDS", 0)
    monkeypatch.setattr(saving, "_copy_bytes", write_meanwhile)
    for _ in range(2):  # the second time it is no news
        stored = place.save()
        assert stored.files == first.files
        assert stored.summary.left_out == ("model: it was written to all the time",)
    monkeypatch.setattr(saving, "_copy_bytes", copy_bytes)
    assert place.save().files[0].size_bytes == len(b"next ") + 6 * len(b"more")


def test_many_files_that_are_written_to_all_the_time_do_not_hold_up_training(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        place.write(f"log{number}")
    slept: list[float] = []
    monkeypatch.setattr(saving, "_PATIENT_SECONDS", 0)
    monkeypatch.setattr(saving.time, "sleep", slept.append)
    monkeypatch.setattr(saving, "_copy_bytes", lambda source, *_: os.utime(source))
    assert paths(place.save()) == []
    assert slept == []


def test_a_file_that_was_written_to_once_is_copied_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("model", b"torn")
    copy_bytes = saving._copy_bytes
    calls: list[int] = []

    def write_meanwhile(source: int, target: int, size: int) -> None:
        copy_bytes(source, target, size)
        calls.append(size)
        if len(calls) == 1:
            place.write("model", b"written")

    monkeypatch.setattr(saving, "_copy_bytes", write_meanwhile)
    (file,) = place.save().files
    assert (len(calls), file.size_bytes) == (2, len(b"written"))


def test_a_file_that_takes_the_place_of_another_meanwhile_is_saved(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts write the next snapshot and then remove the last one."""
    place.write("log")
    place.write("out/snapshot-1")
    copy_bytes = saving._copy_bytes

    def replace_snapshot(source: int, target: int, size: int) -> None:
        copy_bytes(source, target, size)
        if not (place.work / "out/snapshot-2").exists():
            place.write("out/snapshot-2")
            (place.work / "out/snapshot-1").unlink()

    monkeypatch.setattr(saving, "_copy_bytes", replace_snapshot)
    assert paths(place.save()) == ["log", "out/snapshot-2"]


def test_a_directory_that_takes_the_place_of_another_meanwhile_is_saved(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("checkpoint-1/model")
    see = scanning.see

    def replace_directory(path: str, status: os.stat_result) -> scanning.Seen:
        if not (place.work / "checkpoint-2").exists():
            place.write("checkpoint-2/model")
            shutil.rmtree(place.work / "checkpoint-1")
        return see(path, status)

    monkeypatch.setattr(scanning, "see", replace_directory)
    assert paths(place.save()) == ["checkpoint-2/model"]


def test_a_write_through_memory_is_seen(place: Place) -> None:
    """It does not change the times of a file while its page is not written back."""
    target = place.write("array", bytes(mmap.PAGESIZE))
    with target.open("r+b") as file, mmap.mmap(file.fileno(), 0) as array:
        array[0] = 1
        before = place.save()
        array[0] = 2
        captured = place.saver.capture()
        assert not place.saver.is_written(captured)
        assert place.saver.write(captured, BY).files[0].sha256 != before.files[0].sha256


def test_the_same_files_are_known_to_be_written(place: Place) -> None:
    place.write("model")
    assert not place.saver.is_written(place.saver.capture())
    place.save()
    assert place.saver.is_written(place.saver.capture())
    place.write("model").chmod(0o600)
    captured = place.saver.capture()
    assert not place.saver.is_written(captured)
    place.saver.written(captured, place.saver.write(captured, BY))
    (place.work / "link").symlink_to("model")
    assert not place.saver.is_written(place.saver.capture())


def test_a_time_that_no_list_can_name_costs_no_save(place: Place, tmp_path: Path) -> None:
    target = place.write("model")
    os.utime(target, (9_999_999_999, 9_999_999_999))
    if target.stat().st_mtime < 9_999_999_999:
        pytest.skip("this file system does not know that year")
    stored = place.save()
    assert place.saver.is_written(place.saver.capture())
    (tmp_path / "other").mkdir()
    layout.put_back(tmp_path / "other", stored, place.storage, [])
    assert (tmp_path / "other/model").read_bytes() == b"x"


def test_a_list_that_is_too_long_to_be_read_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("model")
    stored = place.save()
    assert FileList.model_validate_json(saving.encoded(stored)) == stored
    monkeypatch.setattr(saving, "MAX_LIST_BYTES", 100)
    with pytest.raises(StorageError, match="more than 100 bytes"):
        saving.encoded(stored)


def test_links_over_the_bound_are_reported(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MAX_FILES", 2)
    for number in range(5):
        (place.work / f"link{number}").symlink_to("model")
    stored = place.save()
    assert (len(stored.links), stored.summary.num_left_out) == (2, 3)


def test_an_upload_name_is_used_again_only_while_the_newest_list_has_it(place: Place) -> None:
    target = place.write("model", b"weights")
    before = place.save().files[0].parts
    target.unlink()
    place.save()
    place.write("model", b"weights")
    assert place.save().files[0].parts != before


def test_a_list_that_comes_too_late_names_nothing_uploaded_long_ago(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("model", bytes(100_000))
    place.write("other", b"o" * 100_000)
    now = [0.0]
    monkeypatch.setattr(saving, "_now", lambda: now[0])
    put = place.storage.put
    pauses = [2000.0, 0.0]

    def slow_put(key: str, data: bytes) -> None:
        put(key, data)
        now[0] += pauses.pop() if pauses else 0.0

    monkeypatch.setattr(place.storage, "put", slow_put)
    captured = place.saver.capture()
    with pytest.raises(StorageError, match="too long"):
        place.saver.write(captured, BY)
    first = place.blobs()
    stored = place.saver.write(captured, BY)
    assert not {part for file in stored.files for part in file.parts} & first


def test_nothing_is_written_through_a_link_or_outside(place: Place, tmp_path: Path) -> None:
    place.write("out/model", b"weights")
    stored = place.save()
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (other / "out").symlink_to(tmp_path / "elsewhere")
    evil = FileList.model_construct(
        **{
            **dict(stored),
            "links": (JobLink.model_construct(path="link", target="../elsewhere"),),
            "removed": ("out/model",),
        }
    )
    layout.put_back(other, evil, place.storage, [])
    assert os.listdir(tmp_path / "elsewhere") == []
    assert (other / "out/model").read_bytes() == b"weights"
    assert not (other / "link").is_symlink()


@pytest.mark.parametrize("path", ["../evil", "/evil", "a/../b", "a//b", ".", "", "a\nb"])
def test_a_list_cannot_name_such_a_path(path: str) -> None:
    with pytest.raises(ValueError, match="no path below"):
        FileList.model_validate({"removed": [path]})


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_a_damaged_part_costs_its_file_and_is_reported(
    place: Place, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    place.write("good", b"good")
    place.write("model", bytes(100_000))
    stored = place.save()
    (part,) = stored.files[1].parts
    damage(place.objects / "blobs" / part)
    other = tmp_path / "other"
    other.mkdir()
    lost: dict[str, str] = {}
    restored = layout.put_back(other, stored, place.storage, lost)
    assert os.listdir(other) == ["good"]
    assert list(lost) == ["model"]
    # Every save tells it, until the program has written the file anew.
    record = Record(restored=restored, lost=lost)
    again = FileSaver(other, tmp_path / "spool", place.storage, record)
    assert again.capture().left_out.examples == [f"model: {lost['model']}"]
    (other / "model").write_bytes(b"anew")
    assert again.capture().left_out.total == 0


def test_small_files_share_blobs_and_only_what_changed_is_uploaded(
    place: Place, tmp_path: Path
) -> None:
    contents = {f"images/{number}": bytes([number]) * 9000 for number in range(250)}
    for path, content in contents.items():
        place.write(path, content)
    place.write("same", contents["images/7"])
    place.write("empty", b"")
    first = place.save()
    assert len(place.blobs()) == 3  # of 1 MiB
    place.write("images/9", b"other")
    place.write("images/10", b"others")
    (place.work / "images/11").rename(place.work / "images/new")
    second = place.save()
    assert len(place.blobs()) == 4
    other = tmp_path / "other"
    other.mkdir()
    for stored in (first, second):
        lost: dict[str, str] = {}
        layout.put_back(other, stored, place.storage, lost)
        assert lost == {}
    contents |= {"images/9": b"other", "images/10": b"others", "images/new": contents["images/11"]}
    contents |= {"same": contents["images/7"], "empty": b""}
    found = {path: (other / path).read_bytes() for path in contents}
    assert found == contents


def test_a_blob_of_which_little_is_used_is_left(place: Place) -> None:
    for number in range(10):
        place.write(f"log{number}", bytes([number]) * 100)
    (shared,) = {file.packed and file.packed.blob for file in place.save().files}
    for number in range(6):
        place.write(f"log{number}", bytes([number]) * 101)
    still = {file.packed and file.packed.blob for file in place.save().files}
    assert shared in still
    after = {file.packed and file.packed.blob for file in place.save().files}
    assert shared not in after
    assert len(place.save().files) == 10


def test_a_damaged_blob_costs_its_files(place: Place, tmp_path: Path) -> None:
    for number in range(5):
        place.write(f"log{number}", bytes([number]) * 100)
    place.write("large", os.urandom(100_000))
    stored = place.save()
    assert stored.files[1].packed is not None
    (place.objects / "blobs" / stored.files[1].packed.blob).write_bytes(b"other")
    other = tmp_path / "other"
    other.mkdir()
    lost: dict[str, str] = {}
    assert list(layout.put_back(other, stored, place.storage, lost)) == ["large"]
    assert sorted(lost) == [f"log{number}" for number in range(5)]


def test_code_is_no_file_of_the_job_until_it_changes(tmp_path: Path) -> None:
    code, work = tmp_path / "code", tmp_path / "work"
    code.mkdir()
    for name in ("train.py", "notes.txt", "unused.txt"):
        (code / name).write_text("code")
    record_path = tmp_path / "attempt" / "record.json"
    record_path.parent.mkdir()
    layout.lay_out(code, work, record_path, lambda: None)
    place = Place(tmp_path, read_record(record_path))
    assert place.saver.capture().is_empty
    (work / "notes.txt").write_text("mine")
    (work / "unused.txt").unlink()
    stored = place.save()
    assert (paths(stored), stored.removed) == (["notes.txt"], ("unused.txt",))
    assert (code / "notes.txt").read_text() == "code"

    (work / "left over").write_text("of the attempt before")
    layout.lay_out(code, work, record_path, lambda: (layout.Source("list", stored), place.storage))
    assert sorted(os.listdir(work)) == ["notes.txt", "train.py"]
    assert (work / "notes.txt").read_text() == "mine"
    # What was put back is known, so the next save uploads nothing.
    again = Place(tmp_path, read_record(record_path))
    assert again.saver.capture().copies == ()


def test_a_directory_that_cannot_be_removed_does_not_prevent_the_next_one(tmp_path: Path) -> None:
    code, work, attempt = tmp_path / "code", tmp_path / "work", tmp_path / "attempt"
    for directory in (code, work, attempt):
        directory.mkdir()
    (code / "train.py").write_text("code")
    deepest = os.open(work, os.O_RDONLY)
    for _ in range(2 * sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=deepest)
        deeper = os.open("d", os.O_RDONLY, dir_fd=deepest)
        os.close(deepest)
        deepest = deeper
    os.close(deepest)
    layout.lay_out(code, work, attempt / "record.json", lambda: None)
    assert os.listdir(work) == ["train.py"]
    subprocess.run(["rm", "-rf", attempt], check=True)  # pytest cannot


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_directory_that_its_owner_made_read_only_is_replaced(tmp_path: Path) -> None:
    code, work, attempt = tmp_path / "code", tmp_path / "work", tmp_path / "attempt"
    for directory in (code, work, attempt, tmp_path):
        directory.mkdir(exist_ok=True)
        os.chown(directory, 65534, 65534)
    work.chmod(0o500)
    at = os.open(tmp_path, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.fchdir(at)
            os.setuid(65534)
            place = Path()
            record = place / "attempt/record.json"
            layout.lay_out(place / "code", place / "work", record, lambda: None)
            os._exit(0)
        os._exit(1)
    os.close(at)
    assert os.waitpid(pid, 0)[1] == 0


def test_code_that_an_older_list_does_not_change_is_put_back(tmp_path: Path) -> None:
    code, work = tmp_path / "code", tmp_path / "work"
    (code / "data").mkdir(parents=True)
    for name in ("train.py", "notes.txt", "data/a"):
        (code / name).write_text("code")
    (code / "link").symlink_to("train.py")
    record_path = tmp_path / "attempt" / "record.json"
    record_path.parent.mkdir()
    layout.lay_out(code, work, record_path, lambda: None)
    shutil.rmtree(work / "data")
    (work / "link").unlink()
    (work / "link").symlink_to("notes.txt")
    for name in ("notes.txt", "kept", "mine"):
        (work / name).write_text("mine")
    (work / "train.py").unlink()
    record = read_record(record_path)
    files = layout.put_back_code(work, code, record, {"kept", "train.py"})
    assert sorted(os.listdir(work)) == ["data", "kept", "link", "notes.txt"]
    assert (work / "notes.txt").read_text() == (work / "data/a").read_text() == "code"
    assert os.readlink(work / "link") == "train.py"
    again = Place(tmp_path, replace(record, code=files))
    assert (paths(again.save()), again.save().removed) == (["kept"], ("train.py",))


def test_a_directory_that_vanishes_is_an_error_and_no_empty_save(place: Place) -> None:
    place.write("model")
    place.save()
    shutil.rmtree(place.work)
    with pytest.raises(OSError, match="work"):
        place.saver.capture()


def test_scanning_is_bounded_in_wide_directories(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "MAX_ENTRIES", 10)
    for number in range(50):
        place.write(f"file{number}")
    assert len(scanning.scan(place.work).files) <= 11


def test_scanning_is_bounded_where_there_are_only_directories(place: Place) -> None:
    for number in range(50):
        (place.work / f"d{number}/empty").mkdir(parents=True)
    found = scanning.scan(place.work, Limits(num_entries=10))
    assert len(found.directories) <= 11
    assert found.left_out.total == 1
