"""Drivetrain: the loop, checkpoints and metrics of a training script, and the shim that runs it.

Importing this package does not import torch, and modules of the loop are imported on first use,
because the command line and the shim are part of the package too. The names below are public.
"""

from typing import TYPE_CHECKING

from drivetrain import seeding as _seeding  # noqa: F401 - sees the generators before the script
from drivetrain import started as _started  # noqa: F401 - sees the directory before the script
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

if TYPE_CHECKING:
    from drivetrain.epoch import Epoch
    from drivetrain.reporting import report
    from drivetrain.training import Run, run
else:
    _MODULES = {"Epoch": "epoch", "Run": "training", "run": "training", "report": "reporting"}

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found
