"""Drivetrain: the loop, checkpoints and metrics of a training script, and what runs it in a pod.

Importing this package imports no torch. The names below are the public ones.
"""

from drivetrain.errors import (
    CheckpointMismatch,
    CheckpointWriteFailed,
    DrivetrainError,
    Interrupted,
    InvalidHyperparameters,
    MissingDistributedSampler,
    NotStorable,
    StorageError,
)
from drivetrain.reporting import report
from drivetrain.training import Epoch, Run, run

__all__ = [
    "CheckpointMismatch",
    "CheckpointWriteFailed",
    "DrivetrainError",
    "Epoch",
    "Interrupted",
    "InvalidHyperparameters",
    "MissingDistributedSampler",
    "NotStorable",
    "Run",
    "StorageError",
    "report",
    "run",
]
