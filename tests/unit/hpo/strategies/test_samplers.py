"""The contract of samplers, on each of them: alone, and with a pruner that pauses and forks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_schemas.expressions import Expression
from services.hpo.core.pruners.base import Base
from services.hpo.core.samplers import SAMPLERS, num_points
from services.hpo.core.space import Choice, Condition, Integer, Uniform, make_space
from services.hpo.core.trials import Trial, Trials, TrialState
from tests.unit.hpo.pruners.tables import make_pruner
from tests.unit.hpo.strategies import contract
from tests.unit.hpo.strategies.contract import Make
from tests.unit.hpo.strategies.simulator import Strategies, World

# Every kind of parameter, one that is only sometimes active, and a constraint; `num` for the grid.
SPACE = make_space(
    {
        "rate": Uniform(1e-4, 1e-1, log=True, num=3),
        "depth": Integer(1, 4, num=2),
        "width": Integer(8, 64, num=3),
        "optimizer": Choice(("sgd", "adam")),
        "momentum": Uniform(0.0, 0.99, num=2),
    },
    conditions={"momentum": (Condition("optimizer", ("sgd",)),)},
    constraints=(Expression("depth * width <= 128"),),
)
worlds = st.builds(
    World,
    seed=st.integers(0, 2**20),
    goal=st.sampled_from(["minimize", "maximize"]),
    max_trials=st.integers(1, 24),
    max_parallel=st.integers(1, 5),
    failing=st.sampled_from([0.0, 0.3, 1.0]),
    preempted=st.sampled_from([0.0, 0.3]),
    diverging=st.sampled_from([0.0, 0.0, 0.3]),
)
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def making(name: str, is_pruned: bool) -> Make:
    def make(world: World) -> Strategies:
        num = num_points(name, SPACE, world.max_trials)
        sampler = SAMPLERS[name](SPACE, world.seed, num)
        if not is_pruned:
            return sampler, Base(())
        return sampler, make_pruner(81, num, world.seed, SPACE, type="asha", min_steps=9)

    return make


@every_sampler
@settings(max_examples=3, deadline=None)
@given(world=worlds, is_pruned=st.booleans())
def test_it_decides_the_same_after_every_restart(name: str, world: World, is_pruned: bool) -> None:
    contract.decides_the_same_after_every_restart(making(name, is_pruned), SPACE, world)


@every_sampler
@settings(max_examples=4, deadline=None)
@given(world=worlds, is_pruned=st.booleans())
def test_it_decides_by_what_it_saw_in_any_order(name: str, world: World, is_pruned: bool) -> None:
    world = replace(world, max_trials=max(1, num_points(name, SPACE, world.max_trials) - 1))
    contract.decides_by_what_it_saw_in_any_order(making(name, is_pruned), SPACE, world)


@every_sampler
@settings(max_examples=3, deadline=None)
@given(world=worlds, is_pruned=st.booleans())
def test_it_runs_no_more_than_allowed_and_ends(name: str, world: World, is_pruned: bool) -> None:
    contract.runs_at_most_so_many_and_ends(making(name, is_pruned), SPACE, world)


@every_sampler
@pytest.mark.parametrize("losses", ["all failed", "all equal", "huge", "tiny differences"])
def test_results_without_a_shape_are_no_trouble(name: str, losses: str) -> None:
    sampler = SAMPLERS[name](SPACE, 3, num_points(name, SPACE, 30))
    trials = Trials(SPACE, ("minimize",), seed=3)
    values = {"all equal": 1.0, "huge": 1e300, "tiny differences": 1.0}
    for number in range(20):
        proposal = sampler.propose(trials, number)
        assert proposal is not None
        assert SPACE.is_feasible(proposal.point)
        state, value = TrialState.FAILED, ()
        if losses != "all failed":
            scale = {"huge": -1.0 if number % 2 else 1.0, "tiny differences": 1 + number * 2**-52}
            state, value = TrialState.COMPLETED, (values[losses] * scale.get(losses, 1.0),)
        trials.put(Trial(number, proposal.point, state, value))


@every_sampler
def test_several_goals_are_proposed_for_and_a_restart_changes_nothing(name: str) -> None:
    num = num_points(name, SPACE, 30)
    sampler = SAMPLERS[name](SPACE, 3, num)
    trials = Trials(SPACE, ("minimize", "maximize"), seed=3)
    for number in range(16):
        proposal = sampler.propose(trials, number)
        assert proposal is not None
        rebuilt = Trials(SPACE, trials.goals, seed=3)
        for trial in trials:
            rebuilt.put(trial)
        assert SAMPLERS[name](SPACE, 3, num).propose(rebuilt, number) == proposal
        values = (np.sin(number), np.cos(number))
        trials.put(Trial(number, proposal.point, TrialState.COMPLETED, values))
