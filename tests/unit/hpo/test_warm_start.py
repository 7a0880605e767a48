"""Trials of an earlier study, as far as they are trials of this space."""

import numpy as np

from services.hpo.core.space import Choice, Condition, Integer, Uniform, make_space
from services.hpo.core.warm_start import placed

SPACE = make_space(
    {
        "batch": Choice((32,)),
        "depth": Integer(1, 4),
        "kind": Choice(("adam", "sgd")),
        "momentum": Uniform(0.0, 1.0),
    },
    {"momentum": (Condition("kind", ("sgd",)),)},
)


def losses_of(*points: dict[str, object], **given: object) -> list[float]:
    finished = [(point, float(place)) for place, point in enumerate(points)]
    return list(placed(SPACE, finished, given).losses)  # type: ignore[arg-type]


def test_an_earlier_trial_has_the_place_of_its_point() -> None:
    found = placed(SPACE, [({"depth": 2, "kind": "adam", "width": 7}, 0.5)], {})
    np.testing.assert_allclose(found.units, [[0.375, 0.25, np.nan]])
    assert list(found.losses) == [0.5]


def test_what_was_not_searched_then_has_the_value_that_its_job_was_given() -> None:
    assert losses_of({"kind": "adam"}) == []
    assert losses_of({"kind": "adam"}, depth=3) == [0.0]
    assert losses_of({"kind": "adam"}, depth=9) == []
    assert losses_of({"kind": "adam", "depth": 1}, depth=9) == [0.0]


def test_trials_outside_this_space_are_left_out() -> None:
    assert losses_of(
        {"depth": 5, "kind": "adam"},
        {"depth": 1, "kind": "lion"},
        {"depth": 1, "kind": "adam", "momentum": 7.0},
        {"depth": 1, "kind": "sgd"},
        {"depth": 1, "kind": "sgd", "momentum": 7.0},
        {"depth": 1, "kind": "sgd", "momentum": 0.5},
        {"depth": 1, "kind": "adam", "batch": 64},
    ) == [2.0, 5.0]


def test_none_is_a_study_without_trials() -> None:
    found = placed(SPACE, [], {})
    assert (found.units.shape, found.losses.shape) == ((0, 3), (0,))
