"""Grid search: every combination of the parameters' points once, in one fixed order.

Parameters stand in the order of their names and the last one varies fastest, so trial n is n
written in mixed radix. The grid is never built; it may have more points than fit in memory.
"""

from math import prod

from services.hpo.core.space import Point, Space, grid_points


def num_points(space: Space) -> int:
    return prod(len(grid_points(parameter)) for _, parameter in space)


def propose(space: Space, seed: int, number: int) -> Point:
    """The point of this trial number; the seed plays no part."""
    chosen = {}
    rest = number
    for name, parameter in reversed(space):
        points = grid_points(parameter)
        rest, index = divmod(rest, len(points))
        chosen[name] = points[index]
    assert rest == 0, f"trial {number} lies outside the grid"
    return {name: chosen[name] for name, _ in space}
