"""A run resumes from a checkpoint: its working directory has the files of that one.

It has them already, unless the run fell back to an older checkpoint, to the one that the job was
forked from, or to its beginning. Pods on several machines have a directory each, laid out from the
same list, and each is corrected.
"""

import logging
from dataclasses import replace

from drivetrain.environment import Environment
from drivetrain.errors import StorageError
from drivetrain.files import choosing, layout, places
from drivetrain.files.layout import Source
from drivetrain.files.record import Record, read_record
from drivetrain.files.scanning import Signature
from drivetrain.restoring import Choice
from drivetrain.storage import Storage, open_storage
from drivetrain_schemas.checkpoint_names import parse_name
from drivetrain_schemas.job_files import JobFile, files_directory
from drivetrain_schemas.object_store import StoreFailure, failure_of_errno

_logger = logging.getLogger("drivetrain")


def agree(
    environment: Environment, record: Record, checkpoints: Storage, choice: Choice
) -> Record | None:
    """What the directory holds now; None where nothing was changed. Raises StorageError."""
    laid_out = record.source
    is_older = choice.manifest is not None and not choice.is_start
    if choice.directory == laid_out:
        return None
    if not is_older and (laid_out is None or parse_name(laid_out) is None):
        return None  # no checkpoint of this job was laid out
    source = None
    if choice.manifest is not None:
        source = choosing.of_checkpoint(checkpoints, choice.directory, choice.manifest)
    if source is not None or not is_older:
        return _put_back(environment, record, source, is_own=is_older)
    as_of = laid_out or "the start of the job"
    _logger.warning("this checkpoint holds no files: they are as of %s", as_of)
    return None


def agree_on_another_machine(
    environment: Environment, first_pod: str, checkpoints: Storage, choice: Choice
) -> None:
    """The same in the first rank of another pod than rank 0's. Raises StorageError.

    `first_pod`: the name of that pod's directory, which is beside ours where they share one.
    """
    if places.shares_directory(environment.directory, first_pod):
        return
    try:
        record = read_record(places.record_path(environment.directory))
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"the job's files: {error}") from error
    agree(environment, record, checkpoints, choice)


def open_files(environment: Environment, job_id: str) -> Storage:
    """A job's directory of files in the object store."""
    return open_storage(
        environment.store_url,
        environment.store_endpoint_url,
        directory=files_directory(environment.tenant_id, job_id),
        store_id=environment.store_id,
    )


def _put_back(
    environment: Environment, record: Record, source: Source | None, *, is_own: bool
) -> Record:
    """`source` None: the code alone."""
    work = environment.job_directory
    lost: dict[str, str] = {}
    kept: set[str] = set()
    if source is not None:
        kept |= {file.path for file in source.files.files}
        kept |= {link.path for link in source.files.links}
        kept |= set(source.files.removed)
    restored: dict[str, tuple[Signature, JobFile]] = {}
    try:
        code = layout.put_back_code(work, environment.directory / "code", record, kept)
        if source is not None:
            storage = open_files(environment, source.files.job_id)
            restored = layout.put_back(work, source.files, storage, lost)
    except OSError as error:
        failure = failure_of_errno(error.errno) if error.errno else StoreFailure.ERROR
        raise StorageError(f"the job's files: {error}", failure) from error
    for path, reason in lost.items():
        _logger.warning("%s: %s", path, reason)
    _logger.warning(
        "%d files were put back as of %s; those opened before are not updated",
        len(restored),
        "the start of the job" if source is None else f"checkpoint {source.name}",
    )
    name = source.name if source is not None and is_own else None
    return replace(record, source=name, code=code, restored=restored if is_own else {}, lost=lost)
