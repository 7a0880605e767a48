"""The samplers by name. A sampler proposes the point of a trial number and keeps no state.

`num_points` returns how many of at most `limit` points a sampler can propose. `propose` is a
function of the space, the seed and the number only, so a restart at any point proposes the same
again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.hpo.core.samplers import grid, random
from services.hpo.core.space import Point, Space


@dataclass(frozen=True, slots=True)
class Sampler:
    num_points: Callable[[Space, int], int]
    propose: Callable[[Space, int, int], Point]


SAMPLERS: Mapping[str, Sampler] = {
    "random": Sampler(num_points=random.num_points, propose=random.propose),
    "grid": Sampler(num_points=grid.num_points, propose=grid.propose),
}
