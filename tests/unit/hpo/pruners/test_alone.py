"""Median, percentile, patience and threshold: tables of measurements and verdicts."""

import statistics

import pytest

from tests.unit.hpo.pruners.tables import Table, make_pruner

C, S = "continue", "stop"


def test_median_waits_for_enough_others_and_compares_strictly() -> None:
    table = Table(make_pruner(type="median", every_steps=10, min_trials=3))
    assert table.pruner.steps_of(0) == (10, 20, 30, 40, 50, 60, 70, 80)
    assert table.verdicts(10, {0: 9.0, 1: 1.0, 2: 2.0}) == {0: C, 1: C, 2: C}
    # The others: 9, 1, 2, with a median of 2. A value equal to it goes on.
    assert table.verdicts(10, {3: 2.0}) == {3: C}
    # 9, 1, 2, 2: the median is still 2.
    assert table.verdicts(10, {4: 2.1}) == {4: S}


def test_median_of_an_even_number_is_between_the_middle_two() -> None:
    others = [4.0, 1.0, 3.0, 8.0]
    table = Table(make_pruner(type="median", every_steps=10, min_trials=4))
    table.verdicts(10, dict(enumerate(others)))
    judgement = table.judge(4, 10, 3.6)
    assert judgement.threshold == statistics.median(others) == 3.5
    assert (judgement.verdict, judgement.rank, judgement.num_ranked) == (S, 3, 5)
    assert judgement.reason == (
        "Its best value so far, 3.6, is worse than the median of 4 others at step 10, 3.5."
    )


def test_median_forgives_one_bad_measurement() -> None:
    table = Table(make_pruner(type="median", every_steps=10, min_trials=1))
    assert table.verdicts(10, {0: 2.0, 1: 1.0}) == {0: C, 1: C}
    assert table.verdicts(20, {0: 1.5, 1: 7.0}) == {0: C, 1: C}


def test_median_does_not_judge_within_the_warmup() -> None:
    pruner = make_pruner(type="median", every_steps=10, warmup_steps=30, max_steps=60)
    assert pruner.steps_of(0) == (40, 50)


@pytest.mark.parametrize(("percentile", "kept"), [(0, 1), (25, 2), (50, 3), (75, 4), (100, 5)])
def test_percentile_keeps_this_part_of_five(percentile: int, kept: int) -> None:
    pruner = make_pruner(type="percentile", every_steps=10, percentile=percentile, min_trials=5)
    verdicts = []
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        table = Table(pruner, "maximize")
        table.verdicts(10, dict(enumerate((1.0, 2.0, 3.0, 4.0, 5.0))))
        verdicts.append(table.judge(5, 10, value).verdict)
    assert verdicts == [S] * (5 - kept) + [C] * kept


def test_patience_stops_what_no_longer_improves_enough() -> None:
    table = Table(make_pruner(type="patience", every_steps=10, rungs=2, min_improvement=0.1))
    values = {10: 5.0, 20: 4.0, 30: 3.95, 40: 3.95, 50: 3.91}
    # At 40 the last two, 3.95, are not more than 0.1 better than 4.0.
    verdicts = [table.judge(0, step, value).verdict for step, value in list(values.items())[:4]]
    assert verdicts == [C, C, C, S]


def test_patience_counts_a_missing_value_as_no_improvement() -> None:
    table = Table(make_pruner(type="patience", every_steps=10, rungs=2), "maximize")
    verdicts = [table.judge(0, 10, 1.0), table.judge(1, 10, 1.0), table.judge(1, 20, 1.0)]
    assert {one.verdict for one in verdicts} == {C}
    assert table.judge(0, 20, None).verdict == S, "trial 1 has a value at 20"
    alone = Table(make_pruner(type="patience", every_steps=10, rungs=2), "maximize")
    alone.judge(0, 10, 1.0)
    assert alone.judge(0, 20, None).verdict == C
    assert alone.judge(0, 30, 1.0).verdict == S


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.99, S), (1.0, C), (2.0, C), (2.01, S), (-1e300, S), (None, C)]
)
def test_threshold_lets_values_on_its_bounds_pass(value: float | None, verdict: str) -> None:
    table = Table(make_pruner(type="threshold", every_steps=10, lower=1.0, upper=2.0))
    assert table.judge(0, 10, value).verdict == verdict
