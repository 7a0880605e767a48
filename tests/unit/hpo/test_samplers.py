"""A sampler's points follow from space, seed and number alone, in this process and any other."""

import subprocess
import sys
from itertools import product

import pytest

from drivetrain_schemas.studies import SamplerName
from services.hpo.core.samplers import SAMPLERS, grid, random
from services.hpo.core.space import Choice, Integer, Uniform, make_space

SPACE = make_space(
    {
        "learning_rate": Uniform(1e-4, 1e-1, log=True, num=5),
        "width": Integer(8, 64, num=4),
        "optimizer": Choice(("sgd", "adam")),
    }
)
GRID = make_space({"b": Choice((1, 2, 3)), "a": Choice(("x", "y"))})


def test_random_points_are_what_they_were_when_this_was_written() -> None:
    """A change of these values changes running studies: it needs a new sampler instead."""
    assert random.propose(SPACE, 7, 0) == {
        "learning_rate": 0.0002104716644,
        "optimizer": "adam",
        "width": 46,
    }


def test_every_sampler_has_its_name_in_the_contract() -> None:
    assert set(SAMPLERS) <= set(SamplerName)


@pytest.mark.parametrize("name", SAMPLERS)
def test_another_process_with_another_hash_seed_proposes_the_same(name: str) -> None:
    program = (
        "from services.hpo.core.samplers import SAMPLERS\n"
        "from services.hpo.core.space import *\n"
        f"print([SAMPLERS[{name!r}].propose({SPACE!r}, 7, number) for number in range(5)])\n"
    )
    want = str([SAMPLERS[name].propose(SPACE, 7, number) for number in range(5)]) + "\n"
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == want


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_point_is_in_the_space_whatever_was_proposed_before(name: str) -> None:
    sampler = SAMPLERS[name]
    number_of_points = sampler.num_points(SPACE, 20)
    assert 1 <= number_of_points <= 20
    points = [sampler.propose(SPACE, 7, number) for number in range(number_of_points)]
    for point in points:
        assert point.keys() == dict(SPACE).keys()
        assert 1e-4 <= float(point["learning_rate"]) <= 1e-1
        assert point["width"] in range(8, 65)
        assert point["optimizer"] in ("sgd", "adam")
    backwards = [sampler.propose(SPACE, 7, n) for n in reversed(range(number_of_points))]
    assert backwards[::-1] == points


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


def test_a_grid_visits_every_combination_once_with_the_last_name_fastest() -> None:
    points = [grid.propose(GRID, 0, number) for number in range(grid.num_points(GRID, 100))]
    want = [{"a": a, "b": b} for a, b in product(("x", "y"), (1, 2, 3))]
    assert points == want


def test_a_grid_larger_than_memory_is_no_trouble() -> None:
    huge = make_space({f"p{index:02d}": Uniform(0.0, 1.0, num=1000) for index in range(64)})
    assert grid.num_points(huge, 100_000) == 100_000
    last = grid.propose(huge, 0, 2_001)
    assert last["p62"] == grid.propose(huge, 0, 2_999)["p62"] > 0.0
    assert last["p63"] == grid.propose(huge, 0, 1)["p63"] > 0.0
    assert last["p00"] == 0.0


def test_only_the_grid_runs_out_of_points() -> None:
    assert SAMPLERS["random"].num_points(GRID, 100) == 100
    assert SAMPLERS["grid"].num_points(GRID, 100) == 6
    assert SAMPLERS["grid"].num_points(GRID, 4) == 4
