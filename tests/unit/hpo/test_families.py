"""Whole studies on made-up objectives of one difficulty each, counted over seeds."""

import numpy as np
import pytest

from benchmarks.lcbench import EPOCHS
from benchmarks.search_families import CURVES, SURFACES, Family
from benchmarks.search_simulation import Ours, search
from services.hpo.core.pruners.asha import AshaStop
from services.hpo.core.pruners.auto import Auto, steps_of_auto
from services.hpo.core.strategies import Pruner

NUM_TRIALS = 100
AUTO = Auto(steps_of_auto(EPOCHS), EPOCHS)
ASHA = AshaStop((5, 15, 45), 3)


def finals(
    family: Family, seed: int, sampler: str, whole: int, pruner: Pruner | None = None
) -> list[float]:
    """The losses of the complete trials, in the steps of so many whole ones."""
    searcher = Ours(sampler, seed, space=family.space, pruner=pruner)
    return [-one.accuracy for one in search(family, str(seed), searcher, whole * EPOCHS)]


def best_ones(name: str, seeds: range) -> list[float]:
    return [min(finals(SURFACES[name], seed, "auto", NUM_TRIALS), default=1.0) for seed in seeds]


@pytest.mark.heavy
def test_one_parameter_does_not_keep_all_trials_in_one_wide_valley() -> None:
    assert sum(best > 0.1 for best in best_ones("one parameter", range(12))) == 0


@pytest.mark.heavy
def test_a_plateau_is_left() -> None:
    assert sum(best > 0.1 for best in best_ones("plateau", range(12))) == 0


@pytest.mark.heavy
def test_outliers_hide_no_good_place() -> None:
    assert sum(best > 0.1 for best in best_ones("outliers", range(12))) == 0


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("divergence", range(12)), ("step", range(8, 20)), ("explosion", range(12))],
)
@pytest.mark.heavy
def test_a_good_place_is_found_where_most_of_the_space_diverges(name: str, seeds: range) -> None:
    assert sum(best > 0.1 for best in best_ones(name, seeds)) == 0


@pytest.mark.parametrize(
    ("name", "fewest"), [("late", 60), ("noise", 30), ("ties", 15), ("crossing", 15)]
)
def test_where_early_values_mislead_trials_go_on_to_complete(name: str, fewest: int) -> None:
    counts = [len(finals(CURVES[name], seed, "random", 60, AUTO)) for seed in range(6)]
    assert min(counts) >= fewest, counts


@pytest.mark.heavy
def test_where_early_values_tell_the_end_most_trials_stop() -> None:
    with_it, without = (
        [min(finals(CURVES["telling"], seed, "random", 60, how)) for seed in range(6)]
        for how in (AUTO, None)
    )
    assert np.mean(with_it) < 0.8 * np.mean(without)
    counts = [len(finals(CURVES["telling"], seed, "random", 60, AUTO)) for seed in range(6)]
    assert max(counts) < 30, counts


def test_asha_goes_on_where_values_tie() -> None:
    counts = [len(finals(CURVES["late"], seed, "random", 40, ASHA)) for seed in range(6)]
    assert min(counts) >= 6, counts


@pytest.mark.parametrize("name", ["late", "noise"])
@pytest.mark.heavy
def test_the_sampler_learns_no_places_from_values_that_tell_nothing(name: str) -> None:
    ends = [min(finals(CURVES[name], seed, "auto", 40, AUTO)) for seed in range(6)]
    assert sum(end > 0.1 for end in ends) == 0, ends
