"""The files of a job as part of its checkpoints: rank 0 takes them between two steps.

The list of files is a file of the checkpoint (`files.json`), so it is verified, kept and deleted
with it. Files never prevent a checkpoint: what cannot be taken or listed is left out, which the log
and the summary in the manifest tell. In a local run there are none: the working directory is the
user's own and stays.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, replace

from drivetrain import manifests
from drivetrain.environment import Environment
from drivetrain.errors import StorageError
from drivetrain.files import choosing, layout, places
from drivetrain.files.complaints import Complaints
from drivetrain.files.layout import Source
from drivetrain.files.record import Record, read_record, write_record
from drivetrain.files.saving import Captured, FileSaver, Saved, encoded
from drivetrain.files.scanning import LeftOut, Signature
from drivetrain.restoring import Choice
from drivetrain.storage import Storage, open_storage
from drivetrain_schemas.checkpoint_names import parse_name
from drivetrain_schemas.checkpoints import Shard
from drivetrain_schemas.job_files import LIST, FileList, FilesSummary, JobFile, files_directory
from drivetrain_schemas.object_store import StoreFailure, failure_of_errno

_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Why a checkpoint holds no files."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What a checkpoint tells of its files; without `shard` and `files` it holds none."""

    summary: FilesSummary
    shard: Shard | None = None
    files: FileList | None = None


class CheckpointFiles:
    """Rank 0's view of the job's files."""

    def __init__(self, environment: Environment, record: Record) -> None:
        self._environment = environment
        self._record = record
        self._storage = open_files(environment, environment.job_id)
        self._saver = self._saver_from(record)
        self._complaints = Complaints()

    def take_over(self) -> None:
        """From now on files are saved with checkpoints, and the shim's lists are for reading."""
        places.owner_path(self._environment.directory).touch()

    def capture(self) -> Captured | NotTaken:
        """The files of this moment, or why there are none; training goes on."""
        try:
            captured = self._saver.capture()
        except OSError as error:
            return self._not_taken(f"the directory cannot be read ({error.strerror})")
        for line in self._complaints.new(captured.left_out):
            _logger.warning("%s", line)
        return captured

    def store(self, captured: Captured | NotTaken, checkpoints: Storage, directory: str) -> Stored:
        """Upload the files, and their list into the checkpoint.

        Raises StorageError where the store is the reason, and it is not full: then the checkpoint
        fails as a whole, because the next one may hold its files.
        """
        environment = self._environment
        saved = Saved(
            environment.tenant_id,
            environment.job_id,
            environment.run_id,
            environment.attempt,
            environment.fence,
        )
        try:
            if isinstance(captured, Captured):
                stored = self._saver.write(captured, saved)
                data = encoded(stored)
                checkpoints.put(f"{directory}/{LIST}", data)
                return Stored(stored.summary, manifests.make_shard(LIST, data, 0), stored)
        except StorageError as error:
            if error.failure != StoreFailure.FULL:
                raise
            captured = self._not_taken(f"the object store is full ({error})")
        except (OSError, ValueError) as error:
            captured = self._not_taken(f"their list cannot be stored ({error})")
        example = f"all: {captured.reason}"[:300]
        return Stored(FilesSummary(num_files=0, size_bytes=0, num_left_out=1, left_out=(example,)))

    def written(self, captured: Captured | NotTaken, stored: Stored) -> None:
        """The checkpoint is complete."""
        if isinstance(captured, Captured) and stored.files is not None:
            self._saver.written(captured, stored.files)
            with suppress(OSError):  # without it the shim reads at the end what is saved already
                write_record(places.saved_path(self._environment.directory), self._saver.record)

    def _not_taken(self, reason: str) -> NotTaken:
        left_out = LeftOut()
        left_out.add("all", reason)
        for line in self._complaints.new(left_out):
            _logger.warning("%s", line)
        return NotTaken(reason)

    def is_written(self, captured: Captured | NotTaken | None) -> bool:
        """Whether the newest checkpoint of this session holds these very files."""
        with suppress(OSError):
            return isinstance(captured, Captured) and self._saver.is_written(captured)
        return False

    def agree_with(self, checkpoints: Storage, choice: Choice) -> None:
        """The run resumes from this checkpoint, or from none: the directory has its files.

        It has them already, unless the run fell back to an older checkpoint, to the one that the
        job was forked from, or to its beginning. Raises StorageError.
        """
        laid_out = self._record.source
        is_older = choice.manifest is not None and not choice.is_start
        if choice.directory == laid_out:
            return
        if not is_older and (laid_out is None or parse_name(laid_out) is None):
            return  # no checkpoint of this job was laid out
        source = None
        if choice.manifest is not None:
            source = choosing.of_checkpoint(checkpoints, choice.directory, choice.manifest)
        if source is not None or not is_older:
            self._put_back(source, is_own=is_older)
            return
        as_of = laid_out or "the start of the job"
        _logger.warning("this checkpoint holds no files: they are as of %s", as_of)

    def _put_back(self, source: Source | None, *, is_own: bool) -> None:
        """`source` None: the code alone."""
        environment, work = self._environment, self._environment.job_directory
        notes: list[str] = []
        kept: set[str] = set()
        if source is not None:
            kept |= {file.path for file in source.files.files}
            kept |= {link.path for link in source.files.links}
            kept |= set(source.files.removed)
        restored: dict[str, tuple[Signature, JobFile]] = {}
        try:
            code = layout.put_back_code(work, environment.directory / "code", self._record, kept)
            if source is not None:
                storage = open_files(environment, source.files.job_id)
                restored = layout.put_back(work, source.files, storage, notes)
        except OSError as error:
            failure = failure_of_errno(error.errno) if error.errno else StoreFailure.ERROR
            raise StorageError(f"the job's files: {error}", failure) from error
        for note in notes:
            _logger.warning("%s", note)
        _logger.warning(
            "%d files were put back as of %s; those opened before are not updated",
            len(restored),
            "the start of the job" if source is None else f"checkpoint {source.name}",
        )
        name = source.name if source is not None and is_own else None
        self._record = replace(
            self._record, source=name, code=code, restored=restored if is_own else {}
        )
        self._saver = self._saver_from(self._record)

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


def open_files(environment: Environment, job_id: str) -> Storage:
    """A job's directory of files in the object store."""
    return open_storage(
        environment.store_url,
        environment.store_endpoint_url,
        directory=files_directory(environment.tenant_id, job_id),
        store_id=environment.store_id,
    )
