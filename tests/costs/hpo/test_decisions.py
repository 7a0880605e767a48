"""What samplers and pruners compute, in memory, after many trials of the same study.

Most read a number of trials that is bounded, and nothing in Python of the others. Arrays of all
losses and points are read as a whole: the CPU time shows that.
"""

from functools import partial
from typing import Any

import pytest

from services.hpo.core import inputs
from services.hpo.core.gaussian_process import Features
from services.hpo.core.outlook import rungs
from services.hpo.core.samplers import SAMPLERS
from services.hpo.core.samplers.following_fit import FollowingFit
from services.hpo.core.search import Search
from tests.costs.counting import Runs, measure
from tests.costs.hpo.studies import FIRST_RUNG, SPACE, search_of, spec_of

NUM_RUNNING = 40
HALVING = {"min_steps": FIRST_RUNG, "reduction_factor": 3}
PRUNERS: dict[str, dict[str, Any]] = {
    "median": {"type": "median", "every_steps": FIRST_RUNG},
    "percentile": {"type": "percentile", "percentile": 25.0, "every_steps": FIRST_RUNG},
    "patience": {"type": "patience", "every_steps": FIRST_RUNG},
    "threshold": {"type": "threshold", "every_steps": FIRST_RUNG, "upper": 9.0},
    "halving": {"type": "halving", **HALVING},
    "hyperband": {"type": "hyperband", **HALVING},
    "asha": {"type": "asha", **HALVING},
    "asha, pausing": {"type": "asha", "mode": "pause", **HALVING},
    "pasha": {"type": "pasha", **HALVING},
    "population": {"type": "population", "every_steps": FIRST_RUNG, "size": 20},
}
AUTO = {"type": "auto"}
PAUSE = ("halving", "asha, pausing", "pasha")
# More trials than its model reads (`gp`, `tpe`), and not more than a test has time for.
SIZES = {"gp": 300, "tpe": 1000}
GRID = {name: {"type": "uniform", "low": 0.0, "high": 1.0, "num": 64} for name in ("x", "y")}


async def asked(size: int, **fields: Any) -> Runs:
    """A caller asks for a point, and tells its value."""
    spec = spec_of(2 * size, NUM_RUNNING, external=True, **fields)
    search = search_of(spec, size, share=100)
    for number in range(size, 2 * size):
        yield partial(ask_and_tell, search, number)


def ask_and_tell(search: Search, number: int) -> None:
    search.on(inputs.Ask(f"asked-{number}"))
    search.on(inputs.Ended(number, (0.5,) * len(search.plan.goals)))


async def begun_again(size: int) -> Runs:
    """A process that was just started learns the model of a long study."""
    trials = search_of(spec_of(2 * size, NUM_RUNNING, external=True), size).trials
    features = Features.of(trials.space)
    assert len(trials.units) == size  # points are encoded once, whoever reads them first
    while True:
        yield partial(FollowingFit(features).parameters, trials, trials.losses)


async def measured(size: int, pruner: dict[str, Any], **how: Any) -> Runs:
    """A trial that runs was measured at its first rung, and is not among the best there."""
    spec = spec_of(2 * size, NUM_RUNNING, pruner=pruner)
    search = search_of(spec, size, NUM_RUNNING, **how)
    for number in range(size, size + NUM_RUNNING):
        for step in search.rungs_of(number)[:1]:
            yield partial(search.on, inputs.MeasuredAt(number, step, 1.5))


async def shown(size: int) -> Runs:
    """The rungs, as the page of a study asks for them."""
    spec = spec_of(2 * size, NUM_RUNNING, pruner=PRUNERS["asha"])
    search = search_of(spec, size, NUM_RUNNING)
    while True:
        yield partial(rungs, search)


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_the_next_point_costs_the_same_after_many_trials(sampler: str) -> None:
    space = GRID if sampler == "grid" else SPACE
    scenario = partial(asked, sampler=sampler, space=space)
    (await measure(scenario, SIZES.get(sampler, 500))).assert_flat()


async def test_the_first_point_after_a_restart_costs_no_walk_through_all_trials() -> None:
    (await measure(begun_again, 2000)).assert_flat()


async def test_the_next_point_for_several_objectives_costs_the_same_after_many_trials() -> None:
    objectives = [{"name": "seconds", "goal": "minimize"}]
    scenario = partial(asked, sampler="tpe", objectives=objectives)
    # Not the CPU time: one loss of each trial is made of them, as an array.
    (await measure(scenario, 1000)).assert_flat("lines")


async def test_the_next_point_with_the_default_pruner_costs_as_much_as_its_rungs() -> None:
    """The losses at a rung are read one by one."""
    (await measure(partial(asked, sampler="auto", pruner=AUTO), 1000)).assert_linear()


@pytest.mark.parametrize("pruner", PRUNERS)
async def test_a_rung_decides_at_the_same_cost_after_many_trials(pruner: str) -> None:
    scenario = partial(measured, pruner=PRUNERS[pruner], are_paused=pruner in PAUSE)
    (await measure(scenario, 500)).assert_flat()


async def test_a_rung_of_the_default_pruner_costs_as_much_as_its_trials() -> None:
    (await measure(partial(measured, pruner=AUTO, share=100), 1000)).assert_linear()


async def test_rungs_are_shown_at_the_cost_of_their_trials() -> None:
    (await measure(shown, 500)).assert_linear()
