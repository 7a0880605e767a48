"""Saving many small files of a job, against writing each of them as an object of its own.

A directory of small files is saved in full, as by the last save of a program, and again after a
tenth of them has changed. The peer writes and syncs each changed file, which is what a save costs
where every file is an object. Then the time for which training waits where many files have not
changed, against a walk that only looks at each of them.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.report import Row, options, publish
from drivetrain.files.record import Record
from drivetrain.files.saving import FileSaver, Saved
from drivetrain.storage import create_storage
from drivetrain_schemas.ids import job_id_for, run_id_for

TITLE = "A job's files"
MEASURES = (
    "trainer/drivetrain/files",
    "trainer/drivetrain/directory_storage.py",
    "trainer/drivetrain/hashing.py",
)
NOTES = """
Median, files of 4 KiB into a directory of this machine. Saving is compared with writing and
syncing each file, waiting with a walk that only looks at each. Small files share objects of 1
MiB, so the number of writes does not grow with that of the files.
"""

JOB = job_id_for("default", "files")
BY = Saved("default", JOB, run_id_for(JOB, 1), 1, 1)
FILE_BYTES = 4096
# A file that has just been written is read again at the next save.
SETTLED_SECONDS = 2.5


def main() -> None:
    chosen = options("job_files", __doc__ or "")
    num_files = 100 if chosen.quick else 5000
    num_unchanged = 1_000 if chosen.quick else 100_000
    rounds = 1 if chosen.quick else 4
    with tempfile.TemporaryDirectory() as directory:
        costs = [_measure(Path(directory) / str(number), num_files) for number in range(rounds)]
        waits = _wait_for_unchanged(Path(directory) / "unchanged", num_unchanged, rounds)
    saved = [f"{num_files:,} files saved for the first time", "a tenth of them changed and saved"]
    rows = [
        _row(f"save-{number}", what, [cost[number] for cost in costs], "at most 1", 1.0)
        for number, what in enumerate(saved)
    ]
    what = f"training waits for {num_unchanged:,} unchanged files"
    rows.append(_row("wait", what, waits, "at most 3", 3.0))
    publish(rows, chosen)


def _row(id: str, what: str, pairs: list[tuple[float, float]], target: str, most: float) -> Row:
    ours, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(id, what, f"{ours:.2f} s", f"{peer:.2f} s", ours / peer, target, ours <= most * peer)


def _measure(place: Path, num_files: int) -> list[tuple[float, float]]:
    """Seconds of ours and of the peer: for all files, then for a tenth."""
    work, peer = place / "work", place / "peer"
    work.mkdir(parents=True)
    peer.mkdir()
    saver = FileSaver(work, place / "spool", create_storage(place / "objects"), Record())
    found = []
    for names in (range(num_files), range(0, num_files, 10)):
        contents = {f"file{name}": os.urandom(FILE_BYTES) for name in names}
        for name, content in contents.items():
            (work / name).write_bytes(content)
        time.sleep(SETTLED_SECONDS)
        found.append((_save(saver), _write_each(peer, contents)))
    return found


def _save(saver: FileSaver) -> float:
    started = time.perf_counter()
    captured = saver.capture()
    saver.written(captured, saver.write(captured, BY))
    return time.perf_counter() - started


def _write_each(place: Path, contents: dict[str, bytes]) -> float:
    started = time.perf_counter()
    for name, content in contents.items():
        with (place / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return time.perf_counter() - started


def _wait_for_unchanged(place: Path, num_files: int, rounds: int) -> list[tuple[float, float]]:
    for number in range(num_files):
        target = place / "work" / str(number // 1000) / str(number)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    saver = FileSaver(place / "work", place / "spool", create_storage(place / "objects"), Record())
    _save(saver)
    pairs = []
    for _ in range(rounds):
        started = time.perf_counter()
        saver.capture()
        captured = time.perf_counter()
        for directory, _, names in os.walk(place / "work"):
            for name in names:
                os.lstat(os.path.join(directory, name))
        pairs.append((captured - started, time.perf_counter() - captured))
    return pairs


if __name__ == "__main__":
    main()
