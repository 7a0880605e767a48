"""Grid search: every combination of the parameters' points once, in one fixed order.

Parameters are in the order of their names and the last one varies fastest, so trial n is n
written in mixed radix. The grid is never built; it may have more points than fit in memory.
"""

from services.hpo.core.space import Point, Space, first_point, grid_points


def num_points(space: Space, limit: int) -> int:
    """The number of combinations, counted no further than to `limit`."""
    total = 1
    for _, parameter in space:
        total *= len(grid_points(parameter))
        if total >= limit:
            return limit
    return total


def propose(space: Space, seed: int, number: int) -> Point:
    """The point of this trial number; the seed plays no part."""
    chosen = {}
    rest = number
    for name, parameter in reversed(space):
        if rest:
            points = grid_points(parameter)
            rest, index = divmod(rest, len(points))
            chosen[name] = points[index]
        else:
            chosen[name] = first_point(parameter)
    assert rest == 0, f"trial {number} lies outside the grid"
    return {name: chosen[name] for name, _ in space}
