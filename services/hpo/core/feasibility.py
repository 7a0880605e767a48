"""Whether a space has points that satisfy its constraints: all of them tried, or many draws.

A small space of whole numbers and choices is walked through as a whole; of any other, NUM_DRAWS
points are drawn from fixed random bits. So the answer depends on the space alone.
"""

import hashlib
from dataclasses import dataclass, replace

from services.hpo.core.grids import Grid
from services.hpo.core.space import Choice, Integer, Parameter, Point, Space, Uniform

NUM_DRAWS = 10_000
MAX_WALKED_POINTS = 50_000


@dataclass(frozen=True, slots=True)
class Found:
    """Points that satisfy all constraints; `tried` is what was looked at, for people."""

    points: tuple[Point, ...]
    tried: str


def feasible_points(space: Space) -> Found:
    """At most NUM_DRAWS of them; none where none was found."""
    num_points = _num_points(space)
    if num_points is not None and num_points <= MAX_WALKED_POINTS:
        grid = Grid(replace(space, parameters=tuple(map(_as_choice, space))))
        grid_points = [grid.point(number) for number in range(grid.num_points(NUM_DRAWS))]
        points = tuple(point for point in grid_points if point is not None)
        if points or not grid.is_cut:
            return Found(points, f"all {num_points:,} combinations")
    drawn = (space.draw_any(_bits, number) for number in range(NUM_DRAWS))
    points = tuple(point for point in drawn if space.satisfies(point))
    return Found(points, f"{NUM_DRAWS:,} random points")


def _num_points(space: Space) -> int | None:
    """How many combinations there are; None where a real number varies."""
    total = 1
    for _, parameter in space:
        if isinstance(parameter, Uniform):
            return None
        if isinstance(parameter, Choice):
            total *= len(parameter.values)
        else:
            total *= parameter.high - parameter.low + 1
    return total


def _as_choice(named: tuple[str, Parameter]) -> tuple[str, Parameter]:
    name, parameter = named
    if isinstance(parameter, Integer):
        return name, Choice(tuple(range(parameter.low, parameter.high + 1)))
    return named


def _bits(name: str, number: int) -> int:
    digest = hashlib.sha256(f"feasible\0{number}\0{name}".encode()).digest()
    return int.from_bytes(digest, "big")
