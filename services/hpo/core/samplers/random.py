"""Random search: every parameter of every trial is drawn independently.

The draw is counter-based: the bits are SHA-256 of (seed, trial number, parameter name). So it
depends on no generator state, no hash seed and no order of the space's mapping, a parameter that is
added changes no other's values, and two studies with one seed try the same points. Points are drawn
with replacement: unlike the grid sampler it repeats points of a small space. A point that breaks a
constraint is drawn again, with the number of the attempt among the bits; where nearly all points
do, one of those is taken that were found before the study began.
"""

import hashlib

from services.hpo.core.feasibility import feasible_points
from services.hpo.core.space import Point, Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Trials


class Random:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._space, self._seed = space, seed

    def propose(self, trials: Trials, number: int) -> Proposal:
        return Proposal(propose(self._space, self._seed, number), "drawn at random")


def propose(space: Space, seed: int, number: int) -> Point:
    """The point of this trial number."""
    point = space.draw(lambda name, attempt: bits(seed, number, name, attempt))
    if point is None:
        points = feasible_points(space).points
        assert points, "a space without feasible points is refused before its study starts"
        point = points[bits(seed, number, "") % len(points)]
    return point


def bits(seed: int, number: int, name: str, attempt: int = 0) -> int:
    """256 random bits of this parameter of this trial."""
    again = f"\0{attempt}" if attempt else ""
    digest = hashlib.sha256(f"random\0{seed}\0{number}\0{name}{again}".encode()).digest()
    return int.from_bytes(digest, "big")
