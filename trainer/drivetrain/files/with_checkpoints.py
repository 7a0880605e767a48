"""The files of a job as part of its checkpoints: rank 0 takes them between two steps.

The list of files is a file of the checkpoint (`files.json`), so it is verified, kept and deleted
with it. In a local run there are none: the working directory is the user's own and stays.
"""

import logging
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from drivetrain import manifests
from drivetrain.environment import Environment
from drivetrain.errors import StorageError
from drivetrain.files import choosing, layout, places, scanning
from drivetrain.files.complaints import new_complaints
from drivetrain.files.record import Record, read_record, write_record
from drivetrain.files.saving import Captured, FileSaver, Saved
from drivetrain.files.scanning import Signature
from drivetrain.storage import Storage, open_storage
from drivetrain_schemas.checkpoints import Manifest, Shard
from drivetrain_schemas.job_files import LIST, FileList, files_directory
from drivetrain_schemas.object_store import StoreFailure, failure_of_errno

_logger = logging.getLogger("drivetrain")


class CheckpointFiles:
    """Rank 0's view of the job's files."""

    def __init__(self, environment: Environment, record: Record) -> None:
        self._environment = environment
        self._record = record
        self._storage = open_files(environment)
        self._saver = self._saver_from(record)
        self._said: Counter[str] = Counter()

    def take_over(self) -> None:
        """From now on files are saved with checkpoints, and the shim's lists are for reading."""
        places.owner_path(self._environment.directory).touch()

    def capture(self) -> Captured | StorageError:
        """The files of this moment, or why they cannot be saved; training goes on."""
        try:
            captured = self._saver.capture()
        except OSError as error:
            return StorageError(f"the job's files: {error}", failure_of_errno(error.errno))
        for line in new_complaints(captured.left_out, self._said):
            _logger.warning("%s", line)
        return captured

    def store(
        self, captured: Captured | StorageError, checkpoints: Storage, directory: str
    ) -> tuple[Shard, FileList]:
        """Upload the files, and their list into the checkpoint. Raises StorageError."""
        if isinstance(captured, StorageError):
            raise captured
        environment = self._environment
        saved = Saved(
            environment.tenant_id,
            environment.job_id,
            environment.run_id,
            environment.attempt,
            environment.fence,
        )
        stored = self._saver.write(captured, saved)
        data = stored.model_dump_json().encode()
        checkpoints.put(f"{directory}/{LIST}", data)
        return manifests.make_shard(LIST, data, 0), stored

    def written(self, captured: Captured | StorageError, stored: FileList) -> None:
        """The checkpoint is complete."""
        if not isinstance(captured, StorageError):
            self._saver.written(captured, stored)
            with suppress(OSError):  # without it the shim reads at the end what is saved already
                write_record(places.saved_path(self._environment.directory), self._saver.record)

    def is_written(self, captured: Captured | StorageError | None) -> bool:
        """Whether the newest checkpoint of this session holds these very files."""
        with suppress(OSError):
            return isinstance(captured, Captured) and self._saver.is_written(captured)
        return False

    def agree_with(self, checkpoints: Storage, name: str, manifest: Manifest) -> None:
        """The run resumes from this checkpoint: its files are those of the directory.

        They are already, unless the run fell back to an older checkpoint. Raises StorageError.
        """
        if name == self._record.source:
            return
        source = choosing.of_checkpoint(checkpoints, name, manifest)
        if source is None:
            return
        work = self._environment.job_directory
        notes: list[str] = []
        try:
            code = self._undo_others(work, source.files)
            restored = layout.put_back(work, source.files, self._storage, notes)
        except OSError as error:
            failure = failure_of_errno(error.errno) if error.errno else StoreFailure.ERROR
            raise StorageError(f"the job's files: {error}", failure) from error
        for note in notes:
            _logger.warning("%s", note)
        _logger.warning(
            "%d files were put back as of checkpoint %s; those opened before are not updated",
            len(restored),
            name,
        )
        self._record = replace(self._record, source=name, code=code, restored=restored)
        self._saver = self._saver_from(self._record)

    def _undo_others(self, work: Path, wanted: FileList) -> dict[str, Signature]:
        """What the checkpoint does not name is removed, or is as in the code; returns the code."""
        kept = {file.path for file in wanted.files} | {link.path for link in wanted.links}
        code = dict(self._record.code)
        found = scanning.scan(work)
        for path in [*found.files, *found.links]:
            if path in kept or path in self._record.code_links:
                continue
            if path not in code:
                (work / path).unlink(missing_ok=True)
            elif path not in found.files or found.files[path].signature != code[path]:
                (work / path).unlink(missing_ok=True)
                shutil.copy2(self._environment.directory / "code" / path, work / path)
                code[path] = scanning.see(path, (work / path).lstat()).signature
        return code

    def _saver_from(self, record: Record) -> FileSaver:
        environment = self._environment
        spool = places.spool_directory(environment.directory, "rank")
        return FileSaver(environment.job_directory, spool, self._storage, record)


def open_checkpoint_files(environment: Environment) -> CheckpointFiles | None:
    """None in a local run, on other ranks than 0, and in a pod of an older platform."""
    if environment.is_local or environment.rank != 0:
        return None
    try:
        record = read_record(places.record_path(environment.directory))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _logger.warning("the job's files are not saved with checkpoints: %s", error)
        return None
    return CheckpointFiles(environment, record)


def open_files(environment: Environment) -> Storage:
    """The job's directory of files in the object store."""
    return open_storage(
        environment.store_url,
        environment.store_endpoint_url,
        directory=files_directory(environment.tenant_id, environment.job_id),
        store_id=environment.store_id,
    )
