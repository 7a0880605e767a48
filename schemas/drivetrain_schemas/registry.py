"""Every known event type by (type, version). Importing this module registers all of them."""

from collections.abc import Mapping

from drivetrain_schemas import (
    allocations,
    annotations,
    budgets,
    charges,
    checkpoints,
    descriptions,
    job_files,
    jobs,
    media,
    metrics,
    nodes,
    parked,
    reports,
    runs,
    silences,
    studies,
    trials,
)
from drivetrain_schemas.base import KINDS, Payload


def all_kinds() -> Mapping[tuple[str, int], type[Payload]]:
    """(type, version) -> payload class, in a fixed order."""
    return dict(sorted(KINDS.items()))
