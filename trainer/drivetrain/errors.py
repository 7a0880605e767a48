"""What can go wrong in a training script, each with a message that names the fix.

`Interrupted` is no error: it is how the platform takes a rank out of its loop at an agreed step.
It derives from BaseException so that a script's own `except Exception` cannot swallow it.
"""

from drivetrain_schemas.object_store import StoreFailure

EXIT_INTERRUPTED = 75  # EX_TEMPFAIL: to be started again, from the last checkpoint


class DrivetrainError(Exception):
    """Base of all errors that this package raises."""


class InvalidHyperparameters(DrivetrainError):
    """The job sets a hyperparameter that the script does not have, or of another type."""


class MissingDistributedSampler(DrivetrainError):
    """Several ranks would all train on the same samples."""


class NotStorable(DrivetrainError):
    """A state holds something that a checkpoint cannot hold without pickle."""


class CheckpointMismatch(DrivetrainError):
    """The checkpoint does not hold what the script wants restored."""


class CheckpointWriteFailed(DrivetrainError):
    """The final checkpoint could not be written within its time."""


class StorageError(DrivetrainError):
    """The object store did not do what was asked; the same call may succeed later."""

    def __init__(self, message: str, failure: StoreFailure = StoreFailure.ERROR) -> None:
        super().__init__(message)
        self.failure = failure


class RankMissing(StorageError):
    """Another rank did not write its part of a checkpoint in time."""


class Interrupted(BaseException):
    """The run stops here, at a step agreed by all ranks, to go on later from its checkpoint."""

    def __init__(self, reason: str, step: int) -> None:
        super().__init__(f"{reason} at step {step}")
        self.reason = reason
        self.step = step
