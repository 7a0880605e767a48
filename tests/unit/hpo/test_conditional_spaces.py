"""Spaces with conditions and constraints: every draw and every grid point is feasible, no parameter
stands where it plays no part, and places in [0, 1] stand for points."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_schemas.expressions import parse
from services.hpo.core.feasibility import feasible_points
from services.hpo.core.grids import Grid
from services.hpo.core.samplers import random
from services.hpo.core.space import (
    Choice,
    Condition,
    Integer,
    Space,
    Uniform,
    grid_points,
    make_space,
)

NETWORK = make_space(
    {
        "optimizer": Choice(("adam", "sgd", 1, True)),
        "momentum": Uniform(0.0, 0.99, num=3),
        "nesterov": Choice((False, True)),
        "depth": Integer(1, 4, num=4),
        "a_width": Integer(8, 64, log=True, num=4),
        "batch": Choice((32,)),
    },
    {
        "momentum": (Condition("optimizer", ("sgd", 1)),),
        "nesterov": (Condition("optimizer", ("sgd",)),),
        "a_width": (Condition("depth", (2, 3, 4)),),
    },
    (parse("a_width * depth <= 128"), parse("momentum < 0.9 or not nesterov")),
)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Small spaces whose parameters may depend on those before them."""
    parameters, conditions = {}, {}
    for name in draw(st.permutations("abcde")):
        discrete = {
            other: each for other, each in parameters.items() if not isinstance(each, Uniform)
        }
        parameters[name] = draw(
            st.sampled_from(
                [
                    Uniform(-1.0, 2.0, num=2),
                    Uniform(1e-3, 1.0, log=True, num=3),
                    Integer(-1, 2, num=4),
                    Integer(1, 9, log=True, num=3),
                    Choice(("x", 1, True, 1.0)),
                    Choice(("only",)),
                ]
            )
        )
        if discrete and draw(st.booleans()):
            other = draw(st.sampled_from(sorted(discrete)))
            values = ("x", 1) if isinstance(discrete[other], Choice) else (1, 2)
            conditions[name] = (Condition(other, values),)
    return make_space(parameters, conditions)


@given(spaces(), st.integers(0, 2**31))
def test_draws_are_feasible_and_their_places_stand_for_them(space: Space, seed: int) -> None:
    point = random.propose(space, seed, 0)
    assert space.is_feasible(point)
    units = space.encode(point)
    assert units.shape == (len(space.dimensions),)
    for dimension, unit in zip(space.dimensions, units, strict=True):
        assert np.isnan(unit) == (dimension.name not in point)
    back = space.decode(units)
    assert back.keys() == point.keys()
    for name, value in point.items():
        assert type(back[name]) is type(value)
        if isinstance(value, float) and not isinstance(dict(space)[name], Choice):
            assert abs(float(back[name]) - value) < 1e-9
        else:
            assert back[name] == value


@given(spaces(), st.data())
def test_any_place_is_a_point_and_many_are_placed_as_one(space: Space, data: st.DataObject) -> None:
    numbers = st.floats(-0.5, 1.5) | st.just(float("nan"))
    row = st.lists(numbers, min_size=len(space.dimensions), max_size=len(space.dimensions))
    rows = np.array(data.draw(st.lists(row, min_size=1, max_size=4)))
    rows = rows.reshape(len(rows), len(space.dimensions))
    points = [space.decode(each) for each in rows]
    assert all(space.is_feasible(point) for point in points)
    want = np.array([space.encode(point) for point in points]).reshape(rows.shape)
    np.testing.assert_allclose(space.snap(rows), want, atol=1e-9)


@given(spaces())
def test_a_grid_has_each_feasible_combination_once(space: Space) -> None:
    names = [name for name, _ in space]
    grid = Grid(space)
    points = [grid.point(number) for number in range(grid.num_points(10_000))]
    values = [[(name, value) for value in _grid(space, name)] for name in names]
    want = set()
    for combination in product(*values):
        all_of_it = dict(combination)
        active = space.active(all_of_it)
        want.add(_key({name: value for name, value in all_of_it.items() if name in active}))
    assert {_key(point) for point in points if point is not None} == want
    assert len(points) == len(want)
    assert grid.point(len(points)) is None


def test_constraints_hold_in_draws_and_on_grids() -> None:
    grid = Grid(NETWORK)
    points = [grid.point(number) for number in range(grid.num_points(10_000))]
    points += [random.propose(NETWORK, 3, number) for number in range(300)]
    for point in points:
        assert point is not None
        assert NETWORK.is_feasible(point)
        has_momentum = point["optimizer"] in ("sgd", 1) and point["optimizer"] is not True
        assert ("momentum" in point) == has_momentum
        assert point["batch"] == 32
        assert point.get("a_width", 0) * point["depth"] <= 128
        assert point.get("momentum", 0) < 0.9 or not point.get("nesterov", False)
    assert {point["depth"] for point in points} == {1, 2, 3, 4}


def test_points_that_are_not_of_the_space_are_told_apart() -> None:
    point = random.propose(NETWORK, 0, 0)
    assert NETWORK.is_feasible(point)
    assert not NETWORK.is_feasible({**point, "batch": 32.0})
    assert not NETWORK.is_feasible({**point, "other": 1})
    assert not NETWORK.is_feasible({name: each for name, each in point.items() if name != "batch"})
    assert not NETWORK.is_feasible({**point, "depth": 5})


def test_random_search_finds_points_of_which_there_are_hardly_any() -> None:
    space = make_space({"a": Integer(1, 200), "b": Integer(1, 200)}, {}, (parse("a * b == 3599"),))
    assert {random.propose(space, 0, number)["a"] for number in range(3)} <= {59, 61}


def test_it_is_said_what_was_tried() -> None:
    small = make_space({"a": Integer(1, 200), "b": Integer(1, 200)}, {}, (parse("a * b == 39989"),))
    assert feasible_points(small).points == ()
    assert feasible_points(small).tried == "all 40,000 combinations"
    real = make_space({"a": Uniform(0.0, 1.0)}, {}, (parse("a > 2"),))
    assert feasible_points(real).points == ()
    assert feasible_points(real).tried == "10,000 random points"


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_an_inactive_parameter_says_nothing_about_a_constraint(seed: int) -> None:
    space = make_space(
        {"a": Choice((0, 1)), "b": Integer(1, 9)},
        {"b": (Condition("a", (1,)),)},
        (parse("b > 8"),),
    )
    point = random.propose(space, seed, 0)
    assert point in ({"a": 0}, {"a": 1, "b": 9})


def _grid(space: Space, name: str) -> tuple[object, ...]:
    return grid_points(dict(space)[name])


def _key(point: dict[str, object]) -> tuple[object, ...]:
    return tuple((name, type(value), value) for name, value in sorted(point.items()))
