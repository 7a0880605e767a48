"""A sampler's points follow from space, seed, number and stored trials, in any process."""

import math
import subprocess
import sys
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from drivetrain_schemas.expressions import Expression
from drivetrain_schemas.studies import SamplerName
from services.hpo.core.gaussian_process import Features
from services.hpo.core.samplers import SAMPLERS, num_points, random
from services.hpo.core.samplers.following_fit import FollowingFit
from services.hpo.core.space import (
    Choice,
    Condition,
    Integer,
    Point,
    Space,
    Uniform,
    make_space,
)
from services.hpo.core.trials import EarlierStudy, Measured, Trial, Trials, TrialState

SPACE = make_space(
    {
        "learning_rate": Uniform(1e-4, 1e-1, log=True, num=5),
        "width": Integer(8, 64, num=4),
        "optimizer": Choice(("sgd", "adam")),
    }
)
GRID = make_space({"b": Choice((1, 2, 3)), "a": Choice(("x", "y"))})
PLANE = make_space({"x": Uniform(0.0, 1.0), "y": Uniform(0.0, 1.0)})
MIXED = make_space(
    {
        "depth": Integer(1, 8),
        "width": Integer(16, 1024, log=True),
        "rate": Uniform(1e-4, 1e-1, log=True),
        "optimizer": Choice(("sgd", "adam", "lamb")),
        "momentum": Uniform(0.0, 0.99),
    },
    conditions={"momentum": (Condition("optimizer", ("sgd",)),)},
    constraints=(Expression("depth * width <= 1024"),),
)
LEARNING = ("auto", "cmaes", "gp", "tpe")

# A change of these changes running studies: it belongs into the changelog.
GOLDEN = {
    "auto": {
        "depth": 4,
        "momentum": 0.964689640008,
        "optimizer": "sgd",
        "rate": 0.00886159625266,
        "width": 19,
    },
    "cmaes": {"depth": 4, "optimizer": "lamb", "rate": 0.0046426804474, "width": 141},
    "gp": {
        "depth": 1,
        "momentum": 0.320935583438,
        "optimizer": "sgd",
        "rate": 0.000755461120982,
        "width": 16,
    },
    "sobol": {"depth": 8, "optimizer": "adam", "rate": 0.0300793268572, "width": 61},
    "tpe": {
        "depth": 1,
        "momentum": 0.359825802886,
        "optimizer": "sgd",
        "rate": 0.0202586399754,
        "width": 898,
    },
}

Loss = Callable[[Point], float | None]


def bowl(point: Point) -> float:
    return (float(point["x"]) - 0.3) ** 2 + (float(point["y"]) - 0.6) ** 2


def mixed(point: Point) -> float | None:
    """Fails for one optimizer and large rates."""
    rate = float(point["rate"])
    if point["optimizer"] == "lamb" and rate > 1e-2:
        return None
    loss = (math.log10(rate) + 2.5) ** 2 + abs(float(point["depth"]) - 5) / 4
    return loss + (point["optimizer"] != "sgd") + abs(float(point.get("momentum", 0.5)) - 0.9)


def run(name: str, space: Space, loss: Loss, num: int, parallel: int = 4, seed: int = 7) -> Trials:
    """A study with parallel trials, of which the one in the middle ends first."""
    sampler = SAMPLERS[name](space, seed, num)
    trials = Trials(space, ("minimize",), seed=seed)
    running: list[int] = []
    while len(trials) < num:
        proposal = sampler.propose(trials, len(trials))
        assert proposal is not None
        assert proposal.why
        trials.put(Trial(len(trials), proposal.point))
        running.append(len(trials) - 1)
        if len(running) == parallel:
            end(trials, running.pop(parallel // 2), loss)
    return trials


def end(trials: Trials, number: int, loss: Loss) -> None:
    point = trials[number].point
    value = loss(point)
    state = TrialState.FAILED if value is None else TrialState.COMPLETED
    trials.put(Trial(number, point, state, () if value is None else (value,)))


def rounded(point: Point) -> Point:
    """Libraries of linear algebra differ in the last digits."""
    return {
        name: float(f"{value:.6g}") if type(value) is float else value
        for name, value in point.items()
    }


def rebuilt(trials: Trials) -> Trials:
    again = Trials(trials.space, trials.goals, seed=trials.seed)
    for trial in trials:
        again.put(trial)
    return again


def test_random_points_are_what_they_were_when_this_was_written() -> None:
    """A change of these values changes running studies: it needs a new sampler instead."""
    assert random.propose(SPACE, 7, 0) == {
        "learning_rate": 0.0002104716644,
        "optimizer": "adam",
        "width": 46,
    }


def test_every_sampler_has_its_name_in_the_contract() -> None:
    assert set(SAMPLERS) == set(SamplerName)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_points_are_what_they_were_when_this_was_written(name: str) -> None:
    trials = run(name, MIXED, mixed, 14)
    assert repr(rounded(trials[13].point)) == repr(rounded(GOLDEN[name]))


def test_another_process_with_another_hash_seed_proposes_the_same() -> None:
    program = (
        "import services.hpo\n"
        "from tests.unit.hpo.test_samplers import MIXED, SAMPLERS, mixed, run\n"
        "for name in SAMPLERS:\n"
        "    if name != 'grid':\n"
        "        print(name, [trial.point for trial in run(name, MIXED, mixed, 16)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(SAMPLERS) - 1


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - {"grid"}))
def test_one_that_is_built_again_proposes_the_same_as_one_that_lived_all_along(name: str) -> None:
    trials = Trials(MIXED, ("minimize",), seed=7)
    lived = SAMPLERS[name](MIXED, 7, 100)
    running: list[int] = []
    rng = np.random.default_rng(0)
    for number in range(45):
        proposal = lived.propose(trials, number)
        if number % 9 == 8:
            assert SAMPLERS[name](MIXED, 7, 100).propose(rebuilt(trials), number) == proposal
        trials.put(Trial(number, proposal.point))
        running.append(number)
        while len(running) > rng.integers(1, 9):
            end(trials, running.pop(rng.integers(len(running))), mixed)


def test_the_model_of_a_long_study_is_the_same_after_a_restart() -> None:
    """Also shortly after its descent has begun again, and where a late result changes the past."""
    rng = np.random.default_rng(0)
    trials, features = Trials(PLANE, ("minimize",)), Features.of(PLANE)
    lived = FollowingFit(features)
    for number in range(540):
        trials.put(Trial(number, {"x": rng.random(), "y": rng.random()}))
        if number != 500:
            end(trials, number, bowl)
        if number == 530:
            end(trials, 500, bowl)
        if number >= 495 or number % 50 == 0:
            again = FollowingFit(features).parameters(trials, trials.losses)
            assert np.array_equal(lived.parameters(trials, trials.losses), again), number


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - {"grid"}))
def test_every_point_is_feasible_in_a_space_with_conditions_and_constraints(name: str) -> None:
    for trial in run(name, MIXED, mixed, 40):
        assert MIXED.is_feasible(trial.point)


@pytest.mark.parametrize("name", LEARNING)
def test_a_sampler_that_learns_finds_the_bottom_of_a_bowl(name: str) -> None:
    best = min(bowl(trial.point) for trial in run(name, PLANE, bowl, 40))
    drawn = min(bowl(trial.point) for trial in run("random", PLANE, bowl, 40))
    assert best < drawn / 3


@pytest.mark.parametrize("name", ["auto", "gp"])
def test_losses_of_trials_that_diverge_do_not_hide_the_others(name: str) -> None:
    """As with a learning rate that is too large: finite, and thousands of times as large."""

    def loss(point: Point) -> float:
        return bowl(point) if float(point["x"]) < 0.6 else 1e4 * (1.0 + float(point["x"]))

    best, drawn = (np.nanmin(run(each, PLANE, loss, 40).losses) for each in (name, "random"))
    assert best < drawn / 10


@pytest.mark.parametrize("name", LEARNING)
def test_a_sampler_learns_where_parameters_are_mixed_and_trials_fail(name: str) -> None:
    losses, drawn = (run(each, MIXED, mixed, 50).losses for each in (name, "random"))
    assert np.nanmin(losses) < np.nanmin(drawn)
    # Where little is left to be gained, most trials look elsewhere.
    assert np.nanpercentile(losses[25:], 25) < np.nanpercentile(drawn[25:], 25)


@pytest.mark.parametrize("name", LEARNING)
def test_studies_whose_trials_all_fail_or_are_all_equal_go_on(name: str) -> None:
    assert len(run(name, MIXED, lambda _: None, 30)) == 30
    assert len(run(name, MIXED, lambda _: 1.0, 30)) == 30


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_a_space_of_one_point_is_proposed_again_and_again(name: str) -> None:
    fixed = make_space({"x": Choice((3,))})
    trials = run(name, fixed, lambda _: 1.0, 1 if name == "grid" else 20)
    assert all(trial.point == {"x": 3} for trial in trials)


@pytest.mark.parametrize("name", sorted(set(LEARNING) - {"cmaes"}))
def test_a_small_space_is_tried_as_a_whole_before_a_point_comes_twice(name: str) -> None:
    space = make_space({"a": Integer(0, 3), "b": Choice(("x", "y", "z"))})
    trials = run(name, space, lambda point: float(point["a"]), 40)
    assert len({tuple(trial.point.values()) for trial in trials}) == 12


@pytest.mark.parametrize("name", ["auto", "gp", "tpe"])
def test_two_objectives_are_both_improved(name: str) -> None:
    trials = Trials(PLANE, ("minimize", "maximize"), seed=3)
    sampler = SAMPLERS[name](PLANE, 3, 60)
    for number in range(60):
        point = sampler.propose(trials, number).point
        x, y = float(point["x"]), float(point["y"])
        values = (x**2 + (y - 0.5) ** 2, -((x - 0.5) ** 2) - (y - 0.5) ** 2)
        trials.put(Trial(number, point, TrialState.COMPLETED, values))
    near = [trial for trial in trials if abs(float(trial.point["y"]) - 0.5) < 0.1]
    places = [float(trial.point["x"]) for trial in near]
    assert min(places) < 0.1
    assert max(places) > 0.4


def test_after_earlier_studies_the_first_points_are_the_ones_that_were_good_there() -> None:
    rng = np.random.default_rng(0)
    earlier = []
    for bottom in (0.2, 0.2, 0.8):
        units = rng.random((40, 2))
        earlier.append(EarlierStudy(units, ((units - bottom) ** 2).sum(axis=1)))
    trials = Trials(PLANE, ("minimize",), earlier=earlier)
    sampler = SAMPLERS["auto"](PLANE, 0, 100)
    places = []
    for number in range(2):
        proposal = sampler.propose(trials, number)
        assert "earlier" in proposal.why
        places.append(PLANE.encode(proposal.point).mean())
        trials.put(Trial(number, proposal.point))
    assert places == pytest.approx([0.2, 0.8], abs=0.15)


def test_auto_learns_from_trials_that_were_stopped_at_a_rung() -> None:
    trials = Trials(PLANE, ("minimize",), seed=7)
    sampler = SAMPLERS["auto"](PLANE, 7, 100)
    for number in range(40):
        point = sampler.propose(trials, number).point
        if number % 8 == 7:
            again = SAMPLERS["auto"](PLANE, 7, 100).propose(rebuilt(trials), number)
            assert again.point == point
        early = (Measured(5, bowl(point) + 1.0),)
        if number % 10 == 0:
            ended = Trial(number, point, TrialState.COMPLETED, (bowl(point),), measured=early)
        else:
            ended = Trial(number, point, TrialState.STOPPED, measured=early)
        trials.put(ended)
    # 20 random trials come so near in one of 15 studies.
    assert min(bowl(trial.point) for trial in list(trials)[:20]) < 0.001


def test_points_differ_by_seed_and_by_number() -> None:
    points = [
        random.propose(SPACE, seed, number)["learning_rate"]
        for seed, number in product(range(10), range(10))
    ]
    assert len(set(points)) == 100


def test_an_added_parameter_leaves_the_others_alone() -> None:
    wider = make_space({**dict(SPACE), "dropout": Uniform(0.0, 0.5)})
    point = random.propose(wider, 3, 4)
    del point["dropout"]
    assert point == random.propose(SPACE, 3, 4)


def test_random_draws_spread_over_the_space() -> None:
    points = [random.propose(SPACE, 0, number) for number in range(1000)]
    small_rates = sum(float(point["learning_rate"]) < 10**-2.5 for point in points)
    assert 400 < small_rates < 600
    assert 400 < sum(point["optimizer"] == "adam" for point in points) < 600
    assert {point["width"] for point in points} == set(range(8, 65))


def test_each_cell_of_a_plane_has_its_share_of_a_quasi_random_sequence() -> None:
    points = [trial.point for trial in run("sobol", PLANE, bowl, 256)]
    cells = {(int(16 * float(point["x"])), int(16 * float(point["y"]))) for point in points}
    assert len(cells) == 256


def test_a_grid_visits_every_combination_once_with_the_last_name_fastest() -> None:
    points = [trial.point for trial in run("grid", GRID, lambda _: 1.0, 6)]
    assert points == [{"a": a, "b": b} for a, b in product(("x", "y"), (1, 2, 3))]


def test_a_grid_larger_than_memory_is_no_trouble() -> None:
    huge = make_space({f"p{index:02d}": Uniform(0.0, 1.0, num=1000) for index in range(64)})
    assert num_points("grid", huge, 100_000) == 100_000
    sampler, trials = SAMPLERS["grid"](huge, 0, 100_000), Trials(huge, ("minimize",))
    last, other, second = (sampler.propose(trials, number).point for number in (2_001, 2_999, 1))
    assert last["p62"] == other["p62"] > 0.0
    assert last["p63"] == second["p63"] > 0.0
    assert last["p00"] == 0.0


def test_only_the_grid_runs_out_of_points() -> None:
    assert num_points("random", GRID, 100) == 100
    assert num_points("grid", GRID, 100) == 6
    assert num_points("grid", GRID, 4) == 4
    sampler = SAMPLERS["grid"](GRID, 0, 100)
    assert sampler.propose(Trials(GRID, ("minimize",)), 6) is None
