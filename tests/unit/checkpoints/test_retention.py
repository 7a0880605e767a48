from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.checkpoint_names import MIN_NEWEST
from services.checkpoints.core.catalogue import (
    Checkpoint,
    best_first,
    latest,
    may_lead,
    newest_first,
)
from services.checkpoints.core.retention import Policy, expendable, reason


def make(step: int, *, fence: int = 1, **fields: Any) -> Checkpoint:
    return Checkpoint(f"ckpt_{fence}_{step}", fence, step, **fields)


CHECKPOINTS = st.lists(
    st.builds(
        make,
        st.integers(0, 50),
        fence=st.integers(1, 4),
        value=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        is_pinned=st.booleans(),
        may_lead=st.booleans(),
        is_read=st.booleans(),
    ),
    max_size=20,
    unique_by=lambda one: one.checkpoint_id,
)
POLICIES = st.builds(
    Policy,
    keep_last=st.integers(0, 5),
    keep_best=st.integers(0, 3),
    goal=st.sampled_from([None, "minimize", "maximize"]),
)


def steps(checkpoints: Any) -> list[int]:
    return [one.step for one in checkpoints]


def test_the_last_ones_the_best_and_the_pinned_stay() -> None:
    good = [
        make(10, value=0.5),
        make(20, value=0.9),
        make(30, value=0.6, is_pinned=True),
        make(40, value=0.7),
        make(50, value=0.8),
        make(60, value=0.1),
    ]
    policy = Policy(keep_last=2, keep_best=1, goal="maximize")
    assert steps(expendable(good, policy)) == [10, 40]


def test_without_a_metric_there_is_no_best() -> None:
    good = [make(step, value=float(step)) for step in (10, 20, 30, 40)]
    assert steps(expendable(good, Policy(keep_last=2, keep_best=3, goal=None))) == [10, 20]


def test_two_of_which_the_bytes_were_read_stay_behind_newer_ones() -> None:
    read = [make(step) for step in (10, 20, 30)]
    good = [*read, *(make(step, is_read=False) for step in (40, 50, 60))]
    assert steps(expendable(good, Policy(keep_last=1, keep_best=0, goal=None))) == [10, 40]


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (Policy(5, 3, "maximize"), "none of the last 5 nor of the best 3, not pinned"),
        (Policy(1, 3, None), "none of the last 2, not pinned"),
        (Policy(2, 0, "minimize"), "none of the last 2, not pinned"),
    ],
)
def test_a_deletion_names_the_rules_that_kept_others(policy: Policy, want: str) -> None:
    assert reason(policy) == want


def test_the_head_stays_though_a_zombie_wrote_three_after_it() -> None:
    good = [make(100), *(make(step, may_lead=False) for step in (150, 160, 170))]
    assert expendable(good, Policy(keep_last=3, keep_best=1, goal=None)) == ()


@given(CHECKPOINTS, POLICIES)
def test_the_two_newest_good_ones_never_go(good: list[Checkpoint], policy: Policy) -> None:
    gone = set(expendable(good, policy))
    assert gone.isdisjoint(newest_first(good)[:MIN_NEWEST])
    head = latest(good)
    assert head not in gone


def test_a_run_that_began_again_at_step_0_does_not_replace_the_run_before() -> None:
    good = [make(step) for step in (99_000, 99_500, 100_000)]
    for step in (10, 20, 30, 40, 50):
        good.append(make(step, fence=2))
        gone = expendable(good, Policy(keep_last=2, keep_best=1, goal=None))
        good = [one for one in good if one not in gone]
    assert steps(good) == [99_500, 100_000, 40, 50]
    good.append(make(100_001, fence=2))
    policy = Policy(keep_last=2, keep_best=1, goal=None)
    assert steps(expendable(good, policy)) == [99_500, 100_000, 40]


@given(CHECKPOINTS, POLICIES)
def test_two_of_an_earlier_fence_stay_until_the_newest_fence_has_passed_them(
    good: list[Checkpoint], policy: Policy
) -> None:
    gone = set(expendable(good, policy))
    newest_fence = max((one.fence for one in good), default=0)
    reached = max((one.step for one in good if one.fence == newest_fence), default=0)
    for fence in {one.fence for one in good} - {newest_fence}:
        two = newest_first(one for one in good if one.fence == fence)[:MIN_NEWEST]
        assert gone.isdisjoint(one for one in two if one.step >= reached)


@given(CHECKPOINTS, POLICIES)
def test_the_two_newest_whose_bytes_were_read_never_go(
    good: list[Checkpoint], policy: Policy
) -> None:
    read = newest_first(one for one in good if one.is_read)
    assert set(expendable(good, policy)).isdisjoint(read[:MIN_NEWEST])


@given(CHECKPOINTS, POLICIES)
def test_pinned_and_best_ones_never_go(good: list[Checkpoint], policy: Policy) -> None:
    gone = expendable(good, policy)
    assert not any(one.is_pinned for one in gone)
    assert set(gone).isdisjoint(best_first(good, policy.goal)[: policy.keep_best])


@given(CHECKPOINTS, POLICIES)
def test_what_is_left_is_bounded(good: list[Checkpoint], policy: Policy) -> None:
    """At most the last N, two of each earlier fence, the best, the pinned; a second look removes
    nothing."""
    gone = set(expendable(good, policy))
    left = [one for one in good if one not in gone]
    num_pinned = sum(one.is_pinned for one in good)
    num_fences = len({one.fence for one in good})
    newest = 2 * max(policy.keep_last, MIN_NEWEST) + MIN_NEWEST * (num_fences + 1)
    assert len(left) <= newest + policy.keep_best + num_pinned
    assert expendable(left, policy) == ()


@given(CHECKPOINTS)
def test_the_latest_is_the_highest_fence_then_step_that_may_lead(good: list[Checkpoint]) -> None:
    head = latest(good)
    leading = [one for one in good if one.may_lead]
    assert (head is None) == (not leading)
    if head is not None:
        assert all((one.fence, one.step) <= (head.fence, head.step) for one in leading)


@pytest.mark.parametrize(("fence", "highest", "want"), [(2, 2, True), (3, 2, True), (1, 2, False)])
def test_a_fence_below_the_highest_does_not_lead(fence: int, highest: int, want: bool) -> None:
    assert may_lead(fence, highest) is want


def test_of_equally_good_ones_the_older_is_the_best() -> None:
    good = [make(30, value=0.5), make(10, value=0.5), make(20, value=0.4), make(5)]
    assert steps(best_first(good, "maximize")) == [10, 30, 20]
    assert steps(best_first(good, "minimize")) == [20, 10, 30]
