"""Grid search: every feasible combination of the parameters' points once, in one fixed order."""

from services.hpo.core.grids import Grid as Points
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Trials


class Grid:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._points = Points(space)
        self._num = self._points.num_points(max_trials)

    def propose(self, trials: Trials, number: int) -> Proposal | None:
        point = self._points.point(number) if number < self._num else None
        if point is None:
            return None
        return Proposal(point, f"point {number + 1} of {self._num} of the grid")
