"""The worth of a trial's result, and the front of trials that none surpasses."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.hpo.core.objectives import NoWorth, Objectives, Safety, Worth, pareto, worth
from services.hpo.core.ranking import Reported
from services.hpo.core.space import make_space
from services.hpo.core.trials import Trial, Trials, TrialState

OBJECTIVES = Objectives(
    (("loss", "minimize"), ("speed", "maximize")), Safety("memory", low=0.0, high=16.0)
)


@pytest.mark.parametrize(
    ("memory", "is_safe"),
    [
        ({"memory": 16.0}, True),
        ({"memory": 0.0}, True),
        ({"memory": 16.1}, False),
        ({"memory": -1.0}, False),
        ({"memory": math.nan}, False),
        ({}, False),
    ],
)
def test_a_trial_is_safe_where_its_metric_is_known_to_keep_its_bounds(
    memory: dict[str, float], is_safe: bool
) -> None:
    reported = Reported({"loss": 0.5, "speed": 3.0, **memory}, "loss", "minimize", 0.25)
    last = memory.get("memory", math.nan)
    known = None if math.isnan(last) else last
    assert worth(reported, OBJECTIVES) == Worth((0.25, 3.0), is_safe, known)


def test_a_trial_without_one_of_the_objectives_has_no_worth() -> None:
    assert worth(None, OBJECTIVES) == NoWorth("the job reported no value of loss")
    assert worth(Reported({"loss": 1.0, "memory": 1.0}), OBJECTIVES) == NoWorth(
        "the job reported no value of speed"
    )


VALUES = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0])] * 3), min_size=1, max_size=30)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_front_is_what_none_surpasses_in_any_order(
    values: list[tuple[float, ...]], random: Random
) -> None:
    trials = Trials(make_space({}), ("minimize", "maximize", "minimize"))
    for number in range(len(values) + 2):
        trials.put(Trial(number, {}))
    trials.put(Trial(len(values), {}, TrialState.FAILED))
    trials.put(Trial(len(values) + 1, {}, TrialState.COMPLETED, (-9.0, 9.0, -9.0), is_safe=False))
    for number in random.sample(range(len(values)), len(values)):
        trials.put(Trial(number, {}, TrialState.COMPLETED, values[number]))
    want = []
    for number, (a, b, c) in enumerate(values):
        surpassed = any(
            x <= a and y >= b and z <= c and ((x, y, z) != (a, b, c) or other < number)
            for other, (x, y, z) in enumerate(values)
        )
        if not surpassed:
            want.append(number)
    assert pareto(trials) == tuple(want)


def test_a_trial_that_diverged_does_not_hide_how_the_others_differ() -> None:
    trials = Trials(make_space({}), ("minimize", "minimize"), seed=1)
    for number in range(10):
        loss = 1e30 if number == 4 else number / 10
        trials.put(Trial(number, {}, TrialState.COMPLETED, (loss, 0.0)))
    losses = trials.losses_for(10)
    assert losses.argmax() == 4
    others = [float(losses[number]) for number in range(10) if number != 4]
    assert others == sorted(others)
    assert others[-1] - others[0] > 0.01
