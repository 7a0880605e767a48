"""A sampler's points follow from space, seed and number alone, in this process and any other."""

import subprocess
import sys
from itertools import product

from services.hpo.core.samplers import SAMPLERS, grid, random
from services.hpo.core.space import Choice, Integer, Uniform, make_space

SPACE = make_space(
    {
        "learning_rate": Uniform(1e-4, 1e-1, log=True),
        "width": Integer(8, 64),
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


def test_another_process_with_another_hash_seed_draws_the_same() -> None:
    program = (
        "from services.hpo.core.samplers import random\n"
        "from services.hpo.core.space import *\n"
        f"print([random.propose({SPACE!r}, 7, number) for number in range(5)])\n"
    )
    want = str([random.propose(SPACE, 7, number) for number in range(5)]) + "\n"
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == want


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
