"""The worth of a trial's result, and the front of trials that none surpasses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.hpo.core.objectives import Front, NoWorth, Objectives, Safety, Worth, worth
from services.hpo.core.ranking import Reported

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
    assert worth(reported, OBJECTIVES) == Worth((0.25, 3.0), is_safe)


def test_a_trial_without_one_of_the_objectives_has_no_worth() -> None:
    assert worth(None, OBJECTIVES) == NoWorth("the job reported no value of loss")
    assert worth(Reported({"loss": 1.0, "memory": 1.0}), OBJECTIVES) == NoWorth(
        "the job reported no value of speed"
    )


LOSSES = st.lists(
    st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, math.inf])] * 3), min_size=1, max_size=30
)


@given(LOSSES, st.randoms())
def test_the_front_is_what_none_surpasses_in_any_order(
    losses: list[tuple[float, ...]], random: object
) -> None:
    trials = list(enumerate(losses))
    random.shuffle(trials)  # type: ignore[attr-defined]
    front = Front()
    for number, each in trials:
        assert front.add(number, each) == (number in front.numbers)
    want = []
    for number, mine in enumerate(losses):
        better = [
            other
            for other, theirs in enumerate(losses)
            if all(a <= b for a, b in zip(theirs, mine, strict=True))
            and (theirs != mine or other < number)
        ]
        if not better:
            want.append(number)
    assert front.numbers == tuple(want)
