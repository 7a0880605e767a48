"""One outcome per run, and which pod explains it."""

from dataclasses import replace

import pytest

from drivetrain_schemas.runs import RunState
from services.scheduler.core.outcome import MAX_DETAIL, conclude, explain, what_happened
from services.scheduler.core.pods import EndKind, EndReason, PodState, Sight
from services.scheduler.core.wishes import Wish
from tests.unit.scheduler.builders import after, make_ended, make_pod, make_run


def make_lost(index, was_alive=True):
    return make_pod(index, Sight.ABSENT, state=PodState.LOST, was_alive=was_alive)


EVICTED = EndReason(EndKind.DISRUPTED, "evicted: the node was low on memory")
NO_IMAGE = EndReason(EndKind.FAILED, "the image cannot be pulled")


CASES = {
    "all succeeded": (make_run(make_ended(0), make_ended(1)), RunState.SUCCEEDED, None, False),
    "all succeeded though a cancel was on its way": (
        make_run(make_ended(0), wish=Wish.CANCEL, stop_reason="cancel"),
        RunState.SUCCEEDED,
        None,
        False,
    ),
    "cancelled explains whatever else happened": (
        make_run(make_ended(0, "failed"), make_lost(1), wish=Wish.CANCEL, stop_reason="cancel"),
        RunState.CANCELLED,
        None,
        False,
    ),
    "an early stop explains whatever else happened": (
        make_run(make_ended(0, "failed"), make_lost(1), wish=Wish.STOP, stop_reason="stop"),
        RunState.STOPPED,
        None,
        False,
    ),
    "a pause interrupts": (
        make_run(make_ended(0, "interrupted"), wish=Wish.PAUSE, stop_reason="pause"),
        RunState.INTERRUPTED,
        None,
        True,
    ),
    "one failed": (make_run(make_ended(0), make_ended(1, "failed")), RunState.FAILED, 1, False),
    "the first that failed is the cause, not those it took along": (
        make_run(
            make_ended(0, "failed", end={"ended_at": after(2)}),
            make_ended(1, "failed", end={"ended_at": after(1)}),
        ),
        RunState.FAILED,
        1,
        False,
    ),
    "what was recorded earlier came earlier, whatever the shims say": (
        make_run(
            make_ended(0, "failed", finished_at=after(1), end={"ended_at": after(9)}),
            make_ended(1, "failed", finished_at=after(3), end={"ended_at": after(2)}),
        ),
        RunState.FAILED,
        0,
        False,
    ),
    "evicted: a disruption, whatever the others then did": (
        make_run(make_ended(0, "failed"), replace(make_lost(1), reason=EVICTED)),
        RunState.INTERRUPTED,
        1,
        False,
    ),
    "drained: its shim stopped at a step and told nobody why": (
        make_run(make_ended(0, "interrupted", reason=EVICTED), make_ended(1, "interrupted")),
        RunState.INTERRUPTED,
        0,
        False,
    ),
    "evicted after it had failed by itself": (
        make_run(make_ended(0, "failed", reason=EVICTED)),
        RunState.FAILED,
        0,
        False,
    ),
    "evicted after a cancel": (
        make_run(replace(make_lost(0), reason=EVICTED), wish=Wish.CANCEL, stop_reason="cancel"),
        RunState.CANCELLED,
        None,
        False,
    ),
    "never started, and the cluster says why": (
        make_run(replace(make_lost(0, was_alive=False), reason=NO_IMAGE)),
        RunState.FAILED,
        0,
        False,
    ),
    "one pod interrupted itself before the other had started": (
        make_run(
            make_ended(0, "interrupted", finished_at=after(1)),
            replace(make_lost(1, was_alive=False), finished_at=after(1)),
            stop_reason="gang",
        ),
        RunState.INTERRUPTED,
        None,
        False,
    ),
    "one pod never started, and the other was stopped for that": (
        make_run(
            make_ended(0, "interrupted", finished_at=after(2)),
            replace(make_lost(1, was_alive=False), finished_at=after(1)),
            stop_reason="gang",
        ),
        RunState.LOST,
        1,
        False,
    ),
    "no pod ever started": (
        make_run(make_lost(0, was_alive=False), make_lost(1, was_alive=False)),
        RunState.LOST,
        0,
        False,
    ),
    "lost": (make_run(make_ended(0), make_lost(1)), RunState.LOST, 1, False),
    "the platform asked it to stop": (
        make_run(make_ended(0, "interrupted"), stop_reason="shutdown"),
        RunState.INTERRUPTED,
        None,
        True,
    ),
    "it stopped by itself": (
        make_run(
            make_ended(0, "interrupted"),
            make_ended(1, "interrupted", notice="gang"),
            stop_reason="gang",
        ),
        RunState.INTERRUPTED,
        None,
        False,
    ),
    "the platform asked it to stop before all of it had started": (
        make_run(make_ended(0, "interrupted"), make_lost(1, False), stop_reason="shutdown"),
        RunState.INTERRUPTED,
        None,
        True,
    ),
    "two were evicted: the first explains it": (
        make_run(
            replace(make_lost(0), reason=EVICTED, finished_at=after(3)),
            replace(make_lost(1), reason=EVICTED, finished_at=after(1)),
        ),
        RunState.INTERRUPTED,
        1,
        False,
    ),
    "one pod that was alive ended before the other had started": (
        make_run(
            replace(make_lost(0), finished_at=after(1)),
            replace(make_lost(1, was_alive=False), finished_at=after(2)),
        ),
        RunState.LOST,
        0,
        False,
    ),
    "one pod ended by itself, unseen, before the other had started": (
        make_run(
            replace(make_ended(0, "interrupted", finished_at=after(1)), was_alive=False),
            replace(make_lost(1, was_alive=False), finished_at=after(2)),
        ),
        RunState.INTERRUPTED,
        None,
        False,
    ),
    "one pod succeeded and the other never started": (
        make_run(
            make_ended(0, finished_at=after(1)),
            replace(make_lost(1, was_alive=False), finished_at=after(2)),
        ),
        RunState.LOST,
        1,
        False,
    ),
    "the platform asked it to stop, and a pod died": (
        make_run(make_ended(0, "interrupted"), make_lost(1), stop_reason="shutdown"),
        RunState.LOST,
        1,
        False,
    ),
}


@pytest.mark.parametrize(("run", "state", "cause", "is_asked"), CASES.values(), ids=CASES.keys())
def test_conclude(run, state, cause, is_asked):
    outcome = conclude(run)

    assert outcome.state is state
    assert (outcome.cause.index if outcome.cause else None) == cause
    assert outcome.is_asked is is_asked


def test_a_run_with_a_live_pod_has_no_outcome_yet():
    with pytest.raises(AssertionError, match="still has pods"):
        conclude(make_run(make_ended(0, "failed"), make_pod(1)))


WHY = {
    "nothing failed": (make_run(make_ended(0)), ""),
    "the cluster's reason": (make_run(replace(make_lost(0), reason=NO_IMAGE)), NO_IMAGE.detail),
    "a shim that was alive": (
        make_run(make_lost(0)),
        "pod 0 ended without saying how; what was left of it was killed",
    ),
    "a shim that never was": (
        make_run(make_lost(0, was_alive=False)),
        "pod 0 never started; what was left of it was killed",
    ),
    "what the program said": (
        make_run(make_ended(0, "failed", end={"detail": "x" * 1001, "rank": 1})),
        "x" * MAX_DETAIL,
    ),
    "a long reason": (
        make_run(replace(make_lost(0), reason=EndReason(EndKind.FAILED, "y" * 1001))),
        "y" * MAX_DETAIL,
    ),
    "a code": (
        make_run(make_ended(0, "failed", end={"exit_code": 3, "rank": 0})),
        "rank 0 ended with code 3",
    ),
    "a signal": (
        make_run(make_ended(0, "failed", end={"signal": 9, "rank": 2})),
        "rank 2 ended by signal 9",
    ),
    "a code of an unknown rank": (
        make_run(make_ended(0, "failed", end={"exit_code": 1})),
        "a rank ended with code 1",
    ),
}


@pytest.mark.parametrize(("run", "want"), WHY.values(), ids=WHY.keys())
def test_explain(run, want):
    assert explain(conclude(run)) == want


def test_a_run_that_could_not_be_started_is_told_so_and_nobody_pays():
    refused = EndReason(EndKind.REFUSED, "the cluster refuses the pod (webhook policy): down")
    pod = make_pod(0, Sight.ABSENT, state=PodState.LOST, was_alive=False, reason=refused)
    outcome = conclude(make_run(pod, make_ended(1, "interrupted"), stop_reason="gang"))
    assert (outcome.state, outcome.is_disrupted) == (RunState.INTERRUPTED, True)
    assert outcome.is_refused
    assert what_happened(outcome, 3) == f"attempt 3 could not be started: {refused.detail}"


def test_what_became_of_a_run_is_told_of_each_that_is_tried_again():
    evicted = make_pod(0, Sight.ABSENT, state=PodState.LOST, reason=EVICTED)
    for pod, want in [
        (make_ended(0, "failed"), "attempt 1 failed: "),
        (make_lost(0), "attempt 1 was lost: pod 0 ended without saying how"),
        (evicted, f"attempt 1 was interrupted: {EVICTED.detail}"),
        (make_ended(0, "interrupted"), "attempt 1 was interrupted"),
    ]:
        outcome = conclude(make_run(pod))
        assert what_happened(outcome, 1).startswith(want)
        assert not outcome.is_refused
