"""Errors in a training script, each with a message that names the fix.

`Interrupted` is not an error: the platform uses it to end a rank's loop at an agreed step.
It derives from BaseException so that a script's own `except Exception` cannot swallow it.
"""

from drivetrain_schemas.object_store import StoreFailure

EXIT_INTERRUPTED = 75  # EX_TEMPFAIL: restart from the last checkpoint


class DrivetrainError(Exception):
    """Base of all errors that this package raises."""


class InvalidHyperparameters(DrivetrainError):
    """The job sets a hyperparameter that the script does not declare, or with another type."""


class MissingDistributedSampler(DrivetrainError):
    """Several ranks would all train on the same samples."""


class NotStorable(DrivetrainError):
    """The state contains a value that cannot be stored without pickle."""


class CheckpointMismatch(DrivetrainError):
    """The checkpoint does not contain the state that the script restores."""


class CheckpointWriteFailed(DrivetrainError):
    """The final checkpoint could not be written in time."""


class StorageError(DrivetrainError):
    """A call to the object store failed; the same call may succeed later."""

    def __init__(self, message: str, failure: StoreFailure = StoreFailure.ERROR) -> None:
        super().__init__(message)
        self.failure = failure


class RankMissing(StorageError):
    """Another rank did not write its part of a checkpoint in time."""


class Interrupted(BaseException):
    """The run stops here, at a step agreed by all ranks, to continue later from its checkpoint."""

    def __init__(self, reason: str, step: int) -> None:
        super().__init__(f"{reason} at step {step}")
        self.reason = reason
        self.step = step
