"""The line "best so far" of a study's page."""

from services.gateway.core.best_so_far import best_so_far


def test_a_trial_that_ended_first_with_a_worse_value_does_not_raise_the_line() -> None:
    # Trial 1 ended before trial 0 and was the best for that time.
    trials = [(0, 0.025), (1, 0.986), (2, 0.055), (3, 0.017), (0, 0.025)]
    assert best_so_far(trials, is_maximized=False) == [(0, 0.025), (3, 0.017)]


def test_a_higher_value_is_better_where_the_metric_is_maximized() -> None:
    assert best_so_far([(2, 0.9), (0, 0.5), (1, 0.4)], is_maximized=True) == [(0, 0.5), (2, 0.9)]


def test_nothing_has_no_line() -> None:
    assert best_so_far([], is_maximized=False) == []


def test_of_equal_values_the_first_trial_stays() -> None:
    for is_maximized in (False, True):
        assert best_so_far([(1, 0.5), (0, 0.5)], is_maximized=is_maximized) == [(0, 0.5)]
