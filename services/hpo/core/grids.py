"""The feasible points of a grid, numbered: every combination once, in one fixed order.

Parameters are in the order of their names and the last one varies fastest. Without conditions and
constraints point n is n written in mixed radix, so a grid may have more points than fit in memory.
Otherwise combinations are walked through, parents before the parameters that depend on them: an
inactive parameter adds no combinations, and combinations that break a constraint are left out.
"""

from collections.abc import Iterator
from itertools import islice

from services.hpo.core.space import Expression, Point, Space, first_point, grid_points

# How many partial combinations are looked at: a grid with constraints ends here, which bounds its
# time (about two seconds). A study with such a grid is refused before it starts.
MAX_WALKED = 200_000


class Grid:
    """The grid of a space; keeps the points found so far."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._parameters = dict(space)
        self._is_plain = not space.conditions and not space.constraints
        self._names = space.parents_first
        # A constraint is checked as soon as the last parameter that it reads is chosen.
        self._due: list[list[Expression]] = [[] for _ in self._names]
        for constraint in space.constraints:
            last = max((self._names.index(name) for name in constraint.names), default=0)
            self._due[last].append(constraint)
        self._walk = self._feasible(0, {})
        self._found: list[Point] = []
        self._num_walked = 0
        self.is_cut = False

    def num_points(self, limit: int) -> int:
        """The number of points, counted no further than to `limit`."""
        if not self._is_plain:
            self._find(limit)
            return min(limit, len(self._found))
        total = 1
        for _, parameter in self._space:
            total *= len(grid_points(parameter))
            if total >= limit:
                return limit
        return total

    def point(self, number: int) -> Point | None:
        """The point of this number; None behind the last."""
        if not self._is_plain:
            self._find(number + 1)
            return self._found[number] if number < len(self._found) else None
        chosen = {}
        rest = number
        for name, parameter in reversed(self._space.parameters):
            if rest:
                points = grid_points(parameter)
                rest, index = divmod(rest, len(points))
                chosen[name] = points[index]
            else:
                chosen[name] = first_point(parameter)
        return None if rest else {name: chosen[name] for name, _ in self._space}

    def _find(self, num: int) -> None:
        self._found += islice(self._walk, max(num - len(self._found), 0))

    def _feasible(self, index: int, chosen: Point) -> Iterator[Point]:
        """The feasible points that begin with these values of the first `index` names."""
        if index == len(self._names):
            yield {name: chosen[name] for name, _ in self._space if name in chosen}
            return
        for values in self._values(self._names[index], chosen):
            self._num_walked += 1
            if self._num_walked > MAX_WALKED:
                self.is_cut = True
                return
            longer = {**chosen, **values}
            if all(each.holds(longer) for each in self._due[index] if each.names <= longer.keys()):
                yield from self._feasible(index + 1, longer)

    def _values(self, name: str, chosen: Point) -> list[Point]:
        if not self._space.is_active(name, chosen):
            return [{}]
        return [{name: value} for value in grid_points(self._parameters[name])]
