"""The outcome of a pod from the ends of its ranks. Pure.

A pod was interrupted when its ranks ended with exit code 75, or after a stop notice: how exactly a
program ends then does not matter. Otherwise the first rank that failed is the cause, since the
others fail in consequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from drivetrain.errors import EXIT_INTERRUPTED
from drivetrain_schemas.pods import RankExit


@dataclass(frozen=True, slots=True)
class Outcome:
    outcome: Literal["succeeded", "failed", "interrupted"]
    first_failed_rank: int | None = None
    detail: str = ""


def rank_exit(rank: int, status: int) -> RankExit:
    """From the status that waitpid returns."""
    code = signed_exit_code(status)
    if code < 0:
        return RankExit(rank=rank, exit_code=None, signal=-code)
    return RankExit(rank=rank, exit_code=code, signal=None)


def signed_exit_code(status: int) -> int:
    # os.waitstatus_to_exitcode, also for what it refuses
    if status & 0x7F:
        return -(status & 0x7F)
    return status >> 8


def has_failed(end: RankExit) -> bool:
    return end.exit_code not in (0, EXIT_INTERRUPTED)


def first_failed(ends: Sequence[RankExit]) -> RankExit | None:
    return next((end for end in ends if has_failed(end)), None)


def decide(ends: Sequence[RankExit], num_ranks: int, has_notice: bool, reason: str) -> Outcome:
    """`ends` in the order in which the ranks ended; `reason` explains the first that failed."""
    if len(ends) == num_ranks and all(end.exit_code == 0 for end in ends):
        return Outcome("succeeded")
    failed = first_failed(ends)
    if has_notice:
        return Outcome("interrupted", detail="" if failed is None else reason)
    if failed is not None:
        return Outcome("failed", failed.rank, reason)
    return Outcome("interrupted")
