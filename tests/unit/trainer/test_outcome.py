"""The outcome of a pod from the exits of its ranks."""

import pytest

from drivetrain.pod.failures import describe
from drivetrain.pod.outcome import Outcome, decide, first_failed, rank_exit
from drivetrain_schemas.pods import RankExit


def ended(rank: int, exit_code: int | None = None, signal: int | None = None) -> RankExit:
    return RankExit(rank=rank, exit_code=exit_code, signal=signal)


@pytest.mark.parametrize(
    ("ends", "has_notice", "want"),
    [
        pytest.param([ended(1, 0), ended(0, 0)], False, Outcome("succeeded"), id="all succeeded"),
        pytest.param(
            [ended(0, 0), ended(1, 0)], True, Outcome("succeeded"), id="done before it could stop"
        ),
        pytest.param([ended(0, 75), ended(1, 75)], True, Outcome("interrupted"), id="stopped"),
        pytest.param([ended(0, 75), ended(1, 0)], False, Outcome("interrupted"), id="by itself"),
        pytest.param(
            [ended(0, signal=15), ended(1, 75)],
            True,
            Outcome("interrupted", None, "rank 0 was killed by signal 15 (SIGTERM)"),
            id="a program that ignores the notice",
        ),
        pytest.param(
            [ended(1, signal=9), ended(0, 1)],
            False,
            Outcome("failed", 1, "rank 1 was killed by signal 9 (SIGKILL)"),
            id="the first failure is the cause",
        ),
        pytest.param(
            [ended(0, 0), ended(1, 3)],
            False,
            Outcome("failed", 1, "rank 1 ended with exit code 3"),
            id="one failed",
        ),
    ],
)
def test_outcome(ends, has_notice, want) -> None:
    failed = first_failed(ends)
    reason = "" if failed is None else describe(failed)
    assert decide(ends, 2, has_notice, reason) == want


@pytest.mark.parametrize(
    ("status", "want"),
    [(0, ended(0, 0)), (75 << 8, ended(0, 75)), (9, ended(0, None, 9)), (0x8B, ended(0, None, 11))],
    ids=["well", "exit code", "signal", "signal with core"],
)
def test_status(status, want) -> None:
    assert rank_exit(0, status) == want
