"""What a search would do next and why, and its rungs with the value that decides at each."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from drivetrain_schemas.pruners import Pruner
from services.hpo.core import inputs
from services.hpo.core.outlook import Next, RungNow, num_paused, rungs, what_next
from services.hpo.core.plan import Plan
from services.hpo.core.search import Search
from services.hpo.core.space import Choice, Uniform, make_space
from services.hpo.core.status import Numbers, Status

PAUSING = {"type": "asha", "min_steps": 3, "mode": "pause"}
POPULATION = {"type": "population", "every_steps": 9, "size": 2, "quantile": 0.5}


def begun(
    num: int, pruner: dict[str, Any] | None = None, parallel: int = 1, **fields: Any
) -> Search:
    spec = None if pruner is None else TypeAdapter(Pruner).validate_python(pruner)
    space = fields.pop("space", make_space({"rate": Uniform(0.0, 1.0)}))
    goal = fields.pop("goal", "minimize")
    plan = Plan(space, (goal,), pruner=spec, max_steps=27, **fields)
    search = Search(plan, Status(Numbers(num, parallel)))
    search.on(inputs.Begin())
    return search


def measured(search: Search, step: int, *values: float | None) -> Search:
    """Values of trials 0, 1, ... at this step; who is to pause pauses."""
    for number, value in enumerate(values):
        while number not in search.opened:
            search.on(inputs.Granted(len(search.trials) - 1))
        search.on(inputs.Granted(number))
        search.on(inputs.MeasuredAt(number, step, value))
        search.on(inputs.Paused(number))
    return search


def test_a_free_place_would_be_used_for_a_new_point() -> None:
    search = begun(3)
    found = what_next(search)
    assert (found.kind, found.number) == ("propose", 1)
    search.on(inputs.Ended(0, (1.0,)))
    assert search.trials[1].point == found.hyperparameters


def test_once_every_trial_was_started_nothing_follows() -> None:
    assert what_next(begun(1)) == Next("wait", "every trial was started")


def test_a_space_without_further_points_is_waited_for() -> None:
    grid = begun(5, space=make_space({"size": Choice(("a",))}), sampler="grid")
    assert what_next(grid) == Next("wait", "the space has no further points")


def test_a_population_waits_for_its_rungs() -> None:
    search = begun(9, POPULATION, parallel=2)
    search.on(inputs.Granted(0))
    assert len(search.trials) == 2
    assert what_next(search) == Next("wait", "the running trials must reach their rungs first")


def test_a_paused_study_waits_and_one_that_ends_says_so() -> None:
    search = begun(4, parallel=2)
    search.on(inputs.PauseStudy("keep"))
    assert what_next(search) == Next("wait", "the study is paused")
    search.on(inputs.StopStudy("enough"))
    assert what_next(search).why == "the study ends when its 2 open trials have ended"
    for number in (0, 1):
        search.on(inputs.Stopped(number))
    assert what_next(search) == Next("end", "the study has ended")


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_rungs_have_raw_values_and_what_decides_there(goal: str, sign: float) -> None:
    search = begun(9, PAUSING, parallel=4, goal=goal)
    values = [sign * loss for loss in (4.0, 2.0, 8.0)]
    measured(search, 3, *values)
    assert num_paused(search) == 3
    assert (what_next(search).kind, what_next(search).number) == ("promote", 1)
    assert rungs(search) == (
        RungNow(
            step=3,
            group=0,
            num_measured=3,
            num_paused=3,
            best=sign * 2.0,
            median=sign * 4.0,
            threshold=sign * 2.0,
        ),
    )


def test_a_rung_without_a_value_has_no_best() -> None:
    search = measured(begun(9, PAUSING, parallel=2), 3, None)
    assert rungs(search) == (
        RungNow(3, 0, num_measured=1, num_paused=0, best=None, median=None, threshold=None),
    )
