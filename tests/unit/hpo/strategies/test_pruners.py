"""The contract of pruners, on each of them, in many simulated worlds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.hpo.core.pruners import PRUNERS
from tests.unit.hpo.pruners.tables import SPACE, make_pruner
from tests.unit.hpo.strategies import contract
from tests.unit.hpo.strategies.contract import Make
from tests.unit.hpo.strategies.simulator import Drawn, Strategies, World

SPECS = {
    "median": {"type": "median", "every_steps": 9, "min_trials": 3},
    "percentile": {"type": "percentile", "every_steps": 9, "percentile": 40, "min_trials": 2},
    "patience": {"type": "patience", "every_steps": 9, "rungs": 2, "min_improvement": 0.01},
    "threshold": {"type": "threshold", "every_steps": 9, "lower": -2.0, "upper": 2.0},
    "halving": {"type": "halving", "min_steps": 3},
    "hyperband": {"type": "hyperband", "min_steps": 9},
    "asha": {"type": "asha", "min_steps": 1},
    "asha, pausing": {"type": "asha", "min_steps": 1, "mode": "pause"},
    "pasha": {"type": "pasha", "min_steps": 1},
    "auto": {"type": "auto"},
    "population": {"type": "population", "every_steps": 9, "size": 5},
}
worlds = st.builds(
    World,
    seed=st.integers(0, 2**20),
    goal=st.sampled_from(["minimize", "maximize"]),
    max_trials=st.integers(1, 20),
    max_parallel=st.integers(1, 8),
    failing=st.sampled_from([0.0, 0.1, 0.5]),
    preempted=st.sampled_from([0.0, 0.3]),
    diverging=st.sampled_from([0.0, 0.0, 0.3]),
    missing=st.sampled_from([0.0, 0.2, 1.0]),
    late=st.sampled_from([0.0, 0.3, 1.0]),
)
every_pruner = pytest.mark.parametrize("name", SPECS)
# Patience and threshold look at one trial alone, so they may stop all.
RANKING = [name for name in SPECS if name not in ("patience", "threshold")]
every_ranking_pruner = pytest.mark.parametrize("name", RANKING)


def making(name: str) -> Make:
    def make(world: World) -> Strategies:
        pruner = make_pruner(world.max_steps, world.max_trials, world.seed, SPACE, **SPECS[name])
        return Drawn(SPACE, world.seed), pruner

    return make


def test_every_pruner_is_here() -> None:
    built = {spec.__name__.removesuffix("Pruner").lower() for spec in PRUNERS}
    assert built == {spec["type"] for spec in SPECS.values()}


@every_pruner
@settings(max_examples=6, deadline=None)
@given(world=worlds)
def test_it_decides_the_same_after_every_restart(name: str, world: World) -> None:
    contract.decides_the_same_after_every_restart(making(name), SPACE, world)


@every_pruner
@settings(max_examples=8, deadline=None)
@given(world=worlds)
def test_it_decides_by_what_it_saw_in_any_order(name: str, world: World) -> None:
    contract.decides_by_what_it_saw_in_any_order(making(name), SPACE, world)


@every_pruner
@settings(max_examples=8, deadline=None)
@given(world=worlds)
def test_it_judges_each_rung_once_runs_no_more_than_allowed_and_ends(
    name: str, world: World
) -> None:
    contract.judges_each_rung_once(making(name), SPACE, world)
    contract.runs_at_most_so_many_and_ends(making(name), SPACE, world)


@every_ranking_pruner
@settings(max_examples=6, deadline=None)
@given(world=worlds)
def test_it_has_a_result_if_no_trial_fails(name: str, world: World) -> None:
    contract.completes_one_if_none_fails(making(name), SPACE, world)


@every_ranking_pruner
def test_it_spends_less_than_all_trials_to_the_end(name: str) -> None:
    world = World(max_trials=60, max_steps=81)
    assert contract.steps_spent(making(name), SPACE, world) < 0.8 * 60 * 81
