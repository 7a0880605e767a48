"""The working directory of a pod's ranks: made before they start, saved while they run and after.

Programs that save checkpoints with the SDK save their files with them. For all others the shim
saves every few minutes, at a stop and at the end; then the next attempt starts with the newest
list. The last list of a job is there to be read, whoever saved before.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from drivetrain import manifests
from drivetrain.errors import CheckpointMismatch, StorageError
from drivetrain.files import choosing, layout, places, scanning
from drivetrain.files.complaints import Complaints
from drivetrain.files.record import Record, read_record
from drivetrain.files.saving import FileSaver, Saved, encoded
from drivetrain.storage import Storage, open_storage
from drivetrain_schemas.checkpoint_names import MANIFEST, job_directory, parse_name
from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.ids import pod_id_for
from drivetrain_schemas.job_files import (
    MAX_EXAMPLES,
    FileList,
    files_directory,
    list_key,
    parse_list_key,
)
from drivetrain_schemas.pods import PodSpec
from drivetrain_schemas.specs import NEWEST

DEFAULT_MINUTES = 3.0
LAST_SECONDS = 120.0
_MIN_SECONDS = 1.0
_STORE_WAIT_SECONDS = 60.0
_logger = logging.getLogger("drivetrain.pod")


def prepare(spec: PodSpec, directory: Path, on_part: Callable[[], None]) -> None:
    """Make the working directory of this attempt; another pod of it may have done so.

    `on_part` is called when a part of a file has arrived.

    Raises CheckpointMismatch, OSError, StorageError.
    """
    record = places.record_path(directory)
    with layout.only_one(places.lock_path(directory)):
        if not record.exists():
            work = places.work_directory(directory)
            code = directory / "code"
            layout.lay_out(code, work, record, lambda: _files_to_put_back(spec), on_part)


def _files_to_put_back(spec: PodSpec) -> tuple[layout.Source, Storage] | None:
    """Nothing was saved before the first attempt, so a store is not asked then."""
    if not may_find_files(spec):
        return None
    deadline = time.monotonic() + _STORE_WAIT_SECONDS
    pause = 0.2
    while True:
        try:
            files = _open(spec, files_directory(spec.tenant_id, spec.job_id))
            checkpoints = _open(spec, job_directory(spec.tenant_id, spec.job_id))
            source = None
            if spec.attempt > 1:
                source = choosing.choose(checkpoints, files, spec.fence)
            return _files_of_start(spec, checkpoints) if source is None else (source, files)
        except StorageError:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def may_find_files(spec: PodSpec) -> bool:
    """Whether an attempt may start with more than its code."""
    return spec.attempt > 1 or spec.job.start_from is not None


def _files_of_start(spec: PodSpec, own: Storage) -> tuple[layout.Source, Storage] | None:
    """Those of the checkpoint of another job that this one starts from.

    Raises CheckpointMismatch if it is gone: to train from the beginning is not meant, and not every
    program asks for it with `run.resume`.
    """
    start = spec.job.start_from
    if start is None:
        return None
    checkpoints = _open(spec, job_directory(spec.tenant_id, start.job_id))
    name, manifest = _find_start(checkpoints, start.checkpoint)
    if manifest is None:
        if manifests.newest_first(own.list()):
            return None  # it goes on from one of its own
        if start.checkpoint == NEWEST:  # the other job may save one yet: look again
            raise StorageError(f"start_from: {start.job_id} has no checkpoint")
        text = f"start_from: the checkpoint {start.checkpoint} of {start.job_id} is not stored"
        raise CheckpointMismatch(text)
    source = choosing.of_checkpoint(checkpoints, name, manifest)
    if source is None:
        return None
    files = _open(spec, files_directory(spec.tenant_id, start.job_id))
    return replace(source, is_own=False), files


def _find_start(checkpoints: Storage, name: str) -> tuple[str, Manifest | None]:
    """The checkpoint of this name; the newest one may be deleted between list and read."""
    names = [name]
    if name == NEWEST:
        names = [one.name for one in manifests.newest_first(checkpoints.list())]
    for each in names:
        manifest = manifests.read_manifest(checkpoints.get(f"{each}/{MANIFEST}"))
        if manifest is not None:
            return each, manifest
    return name, None


def _open(spec: PodSpec, directory: str) -> Storage:
    return open_storage(
        spec.object_store_url,
        spec.object_store_endpoint_url,
        directory=directory,
        store_id=spec.object_store_id,
    )


def _beginning(spec: PodSpec, record: Record) -> str:
    """From what a further attempt goes on; empty where that is no list of the job's own."""
    attempt = f"attempt {spec.attempt} begins with"
    if spec.attempt == 1 or (record.source is None and spec.job.start_from is not None):
        return ""
    if record.source is None:
        return f"{attempt} the code alone: no files were saved before"
    number = len(record.restored)
    files = "1 file that was" if number == 1 else f"{number:,} files that were"
    where = f" with checkpoint {record.source}" if parse_name(record.source) else ""
    return f"{attempt} {files} saved before{where}"


class PodFiles:
    """Saves the job's files from the shim of a run's first pod, in a thread.

    `say` is called with lines for the owner of the job, from any thread.
    """

    def __init__(self, spec: PodSpec, directory: Path, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._directory = directory
        self._say = say
        self._storage: Storage | None = None
        self._saver: FileSaver | None = None
        self._number = 0
        self._first_contents: dict[str, str] = {}  # by path, as this attempt began
        self._first_list: layout.Source | None = None  # the list that it began with
        # Whether the next attempt begins with other files than this one did.
        self.have_changed = False
        self._complaints = Complaints()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        minutes = spec.job.checkpoint.every_minutes or DEFAULT_MINUTES
        self._every_seconds = max(_MIN_SECONDS, 60 * minutes)

    @property
    def _is_ours(self) -> bool:
        return self._spec.first_rank == 0

    @property
    def _is_owned_by_the_program(self) -> bool:
        return places.owner_path(self._directory).exists()

    def start(self, note: Callable[[str], None]) -> None:
        """Save every few minutes from now on. `note` is told what is there already."""
        if self._is_ours:
            with suppress(OSError, ValueError):
                record = read_record(places.record_path(self._directory))
                if beginning := _beginning(self._spec, record):
                    note(beginning)
                for path, reason in list(record.lost.items())[:MAX_EXAMPLES]:
                    self._say(f"{path}: {reason}")
            threading.Thread(target=self._repeat, name="files", daemon=True).start()

    async def save_last(
        self, until: Callable[[], float], beat: Callable[[], None], *, has_failed: bool = False
    ) -> None:
        """After the last process of the pod. `until`: the monotonic time; it may become earlier.

        `has_failed`: by itself, so that the files it began with may be why.
        """
        self._is_over.set()
        if not self._is_ours:
            await asyncio.to_thread(self._say_what_is_lost)
            return
        if self._is_owned_by_the_program:
            self._saver = None  # of before it saved by itself
        started = time.monotonic()
        arguments = (until, has_failed)
        saving = threading.Thread(target=self._save_until, args=arguments, daemon=True)
        saving.start()
        next_beat = time.monotonic() + 1.0
        while saving.is_alive():
            now = time.monotonic()
            if now > min(started + LAST_SECONDS, until()):
                self._say(f"the job's files were not all saved within {now - started:.0f} s")
                return
            if now > next_beat:
                beat()
                next_beat += 1.0
            await asyncio.sleep(0.02)

    def _say_what_is_lost(self) -> None:
        """On another machine than rank 0's: what was written there ends with the pod."""
        first_pod = pod_id_for(self._spec.job_id, self._spec.attempt, 0)
        if places.shares_directory(self._directory, first_pod):
            return
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = read_record(places.record_path(self._directory))
            laid_out = {path: signature for path, (signature, _) in record.restored.items()}
            found = scanning.scan(places.work_directory(self._directory))
            written = [
                path
                for path, seen in found.files.items()
                if seen.signature not in (record.code.get(path), laid_out.get(path))
            ]
            if written:
                self._say(
                    f"{len(written):,} files that were written on this machine are not saved, such "
                    f"as {written[0]}: a job's files are those of rank 0's machine"
                )

    def _repeat(self) -> None:
        while not self._is_over.wait(self._every_seconds):
            if not self._is_owned_by_the_program:
                try:
                    self._save(is_resumable=True)
                except Exception as error:  # the next one may succeed
                    _logger.warning("the job's files were not saved: %r", error)

    def _save_until(self, until: Callable[[], float], has_failed: bool) -> None:
        deadline = time.monotonic() + LAST_SECONDS
        pause = 0.2
        while True:
            try:
                is_resumable = not self._is_owned_by_the_program
                self._save(is_resumable=is_resumable, is_last=True)
                if has_failed and is_resumable and self._number == 0:
                    self._go_back()
                return
            except StorageError as error:
                if time.monotonic() + pause > min(deadline, until()):
                    self._say(f"the job's files are not saved: {error}")
                    return
                _logger.warning("the job's files are not saved yet: %s", error)
            except Exception as error:
                self._say(f"the job's files are not saved: {error}")
                return
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _save(self, *, is_resumable: bool, is_last: bool = False) -> None:
        """Nothing is stored where nothing differs from the list before, or without any from the
        code. That all files of the attempt before were removed is stored."""
        with self._lock:
            saver = self._open_saver()
            captured = saver.capture(is_quiet=is_last and self._spec.num_pods == 1)
            for line in self._complaints.new(captured.left_out):
                self._say(line)
            has_none = self._number == 0 and saver.record.source is None
            if saver.is_written(captured) or (has_none and captured.is_empty):
                return
            stored = saver.write(captured, self._saved_by(), is_resumable=is_resumable)
            if is_resumable and self._is_owned_by_the_program:
                return  # the program goes on with its own checkpoints
            self._number += 1
            key = list_key(self._spec.fence, self._number, time.time_ns())
            self._opened_storage().put(key, encoded(stored))
            saver.written(captured, stored)
            contents = {file.path: file.sha256 for file in stored.files}
            self.have_changed = is_resumable and contents != self._first_contents
            self._note(stored)

    def _go_back(self) -> None:
        """The program failed and left the files that it began with: the next attempt begins with
        those before, since these may be damaged. Raises StorageError."""
        began = self._first_list
        storage = self._opened_storage()
        before = None if began is None else choosing.before(storage, began)
        if began is None or before is None:
            return
        spec = self._spec
        of_now = {"run_id": spec.run_id, "attempt": spec.attempt, "fence": spec.fence}
        files = before.files.model_copy(update={**of_now, "saved_at": datetime.now(UTC)})
        storage.put(list_key(spec.fence, 1, time.time_ns()), encoded(files))
        self._say(
            "this attempt failed and changed none of the files that it began with: the next one "
            f"begins with those of {before.files.saved_at:%Y-%m-%d %H:%M:%S} UTC. "
            f"`drivetrain job files {spec.job_id} --attempt {began.files.attempt}` has the newer"
        )

    def _open_saver(self) -> FileSaver:
        """What the program saved with its last checkpoint need not be read again."""
        if self._saver is None:
            record = read_record(places.record_path(self._directory))
            self._first_contents = {
                path: file.sha256 for path, (_, file) in record.restored.items()
            }
            name = record.source
            if name is not None and parse_list_key(name) is not None:
                began = choosing.read_list(self._opened_storage(), name)
                self._first_list = None if began is None else layout.Source(name, began)
            with suppress(FileNotFoundError):
                record = read_record(places.saved_path(self._directory))
                self._first_list = None
            self._saver = FileSaver(
                places.work_directory(self._directory),
                places.spool_directory(self._directory, "shim"),
                self._opened_storage(),
                record,
                newest=None if self._first_list is None else self._first_list.files,
            )
        return self._saver

    def _opened_storage(self) -> Storage:
        if self._storage is None:
            spec = self._spec
            self._storage = _open(spec, files_directory(spec.tenant_id, spec.job_id))
        return self._storage

    def _saved_by(self) -> Saved:
        spec = self._spec
        return Saved(spec.tenant_id, spec.job_id, spec.run_id, spec.attempt, spec.fence)

    def _note(self, stored: FileList) -> None:
        summary = stored.summary
        _logger.info("files saved: number=%d bytes=%d", summary.num_files, summary.size_bytes)
