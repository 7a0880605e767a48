"""When a study ends before its last trial, and which end it is."""

from dataclasses import replace

import pytest

from services.hpo.core.actions import FailStudy, FinishCancel, FinishStudy
from services.hpo.core.ending import MAX_REFUSED_IN_ROW, counted, end_of, failed_by
from services.hpo.core.inputs import Spent
from services.hpo.core.limits import Limits, changed, crossed, without_improvement
from services.hpo.core.ranking import Ranked
from services.hpo.core.space import Uniform, make_space
from services.hpo.core.status import Numbers, Status
from services.hpo.core.trials import Trials

LIMITS = Limits(device_hours=2.5, cost_usd=10.0, hours=3.0, no_improvement=4, failed_trials=2)
NOTHING = Spent(device_hours=0.0, cost_usd=0.0, hours=0.0)
STATUS = Status(Numbers(10, 2, LIMITS))
TRIALS = Trials(make_space({"rate": Uniform(0.0, 1.0)}), ("minimize",))


@pytest.mark.parametrize(
    ("spent", "ended_by", "reason"),
    [
        (
            {"device_hours": 2.5},
            "device_hours",
            "its trials have held devices for 2.50 of at most 2.5 hours",
        ),
        ({"cost_usd": 10.0}, "cost", "its trials have cost 10.00 of at most 10 USD"),
        ({"hours": 3.0}, "hours", "it has run for 3 hours, as long as it may"),
        ({"device_hours": 2.49, "cost_usd": 9.99, "hours": 2.99}, None, None),
        ({"device_hours": 3.0, "cost_usd": 12.0, "hours": 4.0}, "device_hours", None),
    ],
)
def test_a_limit_is_crossed_once_it_is_reached(
    spent: dict[str, float], ended_by: str | None, reason: str | None
) -> None:
    found = crossed(LIMITS, replace(NOTHING, **spent))
    assert (found and found.ended_by) == ended_by
    assert reason is None or (found is not None and found.reason == reason)


def test_without_limits_nothing_is_crossed_and_no_clock_is_needed() -> None:
    assert crossed(Limits(), Spent(device_hours=1e9, cost_usd=1e9, hours=1e9)) is None
    assert not Limits(no_improvement=1, failed_trials=1).need_a_clock
    for name in ("device_hours", "cost_usd", "hours"):
        assert Limits(**{name: 1.0}).need_a_clock


@pytest.mark.parametrize(("num", "is_crossed"), [(3, False), (4, True), (5, True)])
def test_so_many_trials_without_improvement_end_a_study(num: int, is_crossed: bool) -> None:
    assert (without_improvement(LIMITS, num) is not None) is is_crossed
    assert without_improvement(Limits(), num) is None


def test_limits_that_are_not_given_stay() -> None:
    before = replace(LIMITS, min_change=0.1)
    assert changed(before, Limits(hours=9.0)) == replace(before, hours=9.0)
    given = Limits(no_improvement=7, min_change=0.2)
    assert changed(before, given) == replace(before, no_improvement=7, min_change=0.2)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"num_failed": 1}, None),
        ({"num_failed": 2}, "failed_trials"),
        ({"num_failed": 3, "num_tolerated": 2}, None),
        ({"num_refused_in_row": MAX_REFUSED_IN_ROW - 1}, None),
        ({"num_refused_in_row": MAX_REFUSED_IN_ROW}, "trials_refused"),
    ],
)
def test_failures_that_end_a_study(fields: dict[str, int], want: str | None) -> None:
    assert failed_by(replace(STATUS, **fields)) == want
    if not fields.get("num_refused_in_row"):
        unlimited = replace(STATUS, numbers=Numbers(10, 2), **fields)
        assert failed_by(unlimited) is None


@pytest.mark.parametrize(
    ("best", "before", "num", "want"),
    [
        (None, None, 3, (None, 4)),
        (0.5, None, 3, (0.5, 0)),
        (0.4, 0.5, 3, (0.5, 4)),
        (0.39, 0.5, 3, (0.39, 0)),
    ],
)
def test_an_improvement_is_more_than_the_least_change(
    best: float | None, before: float | None, num: int, want: tuple[float | None, int]
) -> None:
    limits = replace(LIMITS, min_change=0.1)
    status = Status(
        Numbers(10, 2, limits),
        best=None if best is None else Ranked(1, best),
        best_counted=before,
        num_since_best=num,
    )
    found = counted(status, TRIALS)
    assert (found.best_counted, found.num_since_best) == want


BEST = Ranked(1, 0.5)


@pytest.mark.parametrize(
    ("fields", "may_go_on", "want"),
    [
        ({"is_finished": True, "is_cancelled": True}, False, None),
        ({"is_cancelled": True, "failing": "failed_trials"}, True, FinishCancel(None)),
        ({"failing": "failed_trials", "ending": "hours"}, True, FailStudy("failed_trials")),
        ({"ending": "hours", "best": BEST}, True, FinishStudy("hours", BEST, ())),
        ({"num_failed": 3}, True, None),
        ({"num_failed": 3}, False, FailStudy("all_trials_failed")),
        ({"num_failed": 3, "num_stopped": 1}, False, FinishStudy("max_trials", None, ())),
        ({"num_failed": 3, "num_completed": 1}, False, FinishStudy("max_trials", None, ())),
        ({}, False, FinishStudy("max_trials", None, ())),
        ({"num_points": 4}, False, FinishStudy("space_exhausted", None, ())),
    ],
)
def test_how_a_study_without_open_trials_ends(
    fields: dict[str, object], may_go_on: bool, want: object
) -> None:
    assert end_of(replace(STATUS, **fields), TRIALS, may_go_on=may_go_on) == want


def test_the_state_of_a_study_and_how_many_trials_there_will_be() -> None:
    assert STATUS.state == "running"
    assert replace(STATUS, paused="keep").state == "paused"
    assert replace(STATUS, paused="keep", ending="hours").state == "ending"
    assert replace(STATUS, is_cancelled=True).state == "ending"
    assert replace(STATUS, is_cancelled=True, is_finished=True).state == "finished"
    numbers = [replace(STATUS, num_points=num).num_trials for num in (None, 4, 11)]
    assert numbers == [10, 4, 10]


def test_refusals_in_a_row_are_those_without_another_end_between() -> None:
    refused = STATUS.with_failed(is_refused=True).with_failed(is_refused=True)
    assert (refused.num_refused_in_row, refused.num_failed) == (2, 2)
    assert refused.with_failed(is_refused=False).num_refused_in_row == 0
    assert refused.with_completed(None).num_refused_in_row == 0
