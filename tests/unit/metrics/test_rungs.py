"""When a rung is reached, and which value counts there."""

import math

import pytest

from services.metrics.core.rungs import Reached, Sample, Trial, finite, rungs_reached, value_at

TRIAL = Trial("job_a", "default", "study_a", 7, "loss", rungs=(10, 30, 90))
ENDED = Trial("job_a", "default", "study_a", 7, "loss", rungs=(10, 30, 90), is_ended=True)
ONE = Trial("job_a", "default", "study_a", 7, "loss", rungs=(10,))
LATER = Trial("job_a", "default", "study_a", 7, "loss", rungs=(10, 30, 90), num_measured=2)

REACHED = {
    "nothing is logged": (TRIAL, Reached(), []),
    "just below": (TRIAL, Reached(9, 9), []),
    "at the rung": (TRIAL, Reached(10, 10), [10]),
    "a metric of each epoch reaches several": (TRIAL, Reached(60, 60), [10, 30]),
    "others are logged, the metric may follow": (TRIAL, Reached(9, 30), []),
    "others are logged a rung's distance later": (TRIAL, Reached(9, 31), [10]),
    "just after the metric": (TRIAL, Reached(10, 31), [10]),
    "of one rung its own step counts": (ONE, Reached(9, 20), []),
    "twice that far it is passed": (ONE, Reached(9, 21), [10]),
    "what was announced is not again": (LATER, Reached(60, 60), []),
    "all": (LATER, Reached(90, 90), [90]),
    "after the last rung its own distance counts": (LATER, Reached(80, 150), []),
    "which is over": (LATER, Reached(80, 151), [90]),
    "a run that ended needs no more": (ENDED, Reached(9, 30), [10, 30]),
    "but reaches nothing beyond its end": (ENDED, Reached(9, 29), [10]),
}


@pytest.mark.parametrize(("trial", "reached", "want"), REACHED.values(), ids=REACHED.keys())
def test_reached(trial, reached, want):
    assert list(rungs_reached(trial, reached)) == want


VALUES = {
    "the highest step up to the rung": ([(5, 1, 0.5), (9, 1, 0.9), (12, 1, 1.2)], (9, 1, 0.9)),
    "the rung itself": ([(9, 1, 0.9), (10, 1, 1.0)], (10, 1, 1.0)),
    "a step before, however late another comes": ([(11, 9, 1.1), (2, 1, 0.2)], (2, 1, 0.2)),
    "else the first after it": ([(20, 1, 2.0), (12, 1, 1.2)], (12, 1, 1.2)),
    "of one step the newest attempt": ([(9, 2, 0.2), (9, 1, 0.9)], (9, 2, 0.2)),
    "of one attempt what came last": ([(9, 1, 0.9), (9, 1, 0.8)], (9, 1, 0.8)),
}


@pytest.mark.parametrize(("samples", "want"), VALUES.values(), ids=VALUES.keys())
def test_value(samples, want):
    assert value_at(10, [Sample(*sample) for sample in samples]) == Sample(*want)


def test_no_value():
    assert value_at(10, []) is None
    assert finite(math.nan) is finite(-math.inf) is None
    assert finite(0.5) == 0.5
