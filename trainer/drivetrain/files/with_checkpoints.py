"""The files of a job as part of its checkpoints: rank 0 takes them between two steps.

The list of files is a file of the checkpoint (`files.json`), so it is verified, kept and deleted
with it. Files never prevent a checkpoint: what cannot be taken or listed is left out, which the log
and the summary in the manifest tell. In a local run there are none: the working directory is the
user's own and stays.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from drivetrain import manifests
from drivetrain.environment import Environment
from drivetrain.errors import StorageError
from drivetrain.files import places
from drivetrain.files.agreeing import agree, open_files
from drivetrain.files.complaints import Complaints
from drivetrain.files.record import Record, read_record, write_record
from drivetrain.files.saving import Captured, FileSaver, Saved, encoded
from drivetrain.files.scanning import LeftOut
from drivetrain.restoring import Choice
from drivetrain.storage import Storage
from drivetrain_schemas.checkpoints import Shard
from drivetrain_schemas.job_files import LIST, FileList, FilesSummary
from drivetrain_schemas.object_store import StoreFailure

_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Why a checkpoint holds no files."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What a checkpoint records of its files; without `shard` and `files` it holds none."""

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

        Raises StorageError.
        """
        record = agree(self._environment, self._record, checkpoints, choice)
        if record is not None:
            self._record = record
            self._saver = self._saver_from(record)

    def _saver_from(self, record: Record) -> FileSaver:
        environment = self._environment
        spool = places.spool_directory(environment.directory, "rank")
        return FileSaver(environment.job_directory, spool, self._storage, record)


def open_checkpoint_files(environment: Environment) -> CheckpointFiles | None:
    """None in a local run, on other ranks than 0, and where the pod has no record of its files."""
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
