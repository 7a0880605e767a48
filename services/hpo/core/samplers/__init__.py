"""The samplers by name, each in a file of its own."""

from collections.abc import Callable, Mapping

from services.hpo.core.grids import Grid as GridPoints
from services.hpo.core.samplers.auto import Auto
from services.hpo.core.samplers.cmaes import Cmaes
from services.hpo.core.samplers.gp import Gp
from services.hpo.core.samplers.grid import Grid
from services.hpo.core.samplers.random import Random
from services.hpo.core.samplers.sobol import Sobol
from services.hpo.core.samplers.tpe import Tpe
from services.hpo.core.space import Space
from services.hpo.core.strategies import Sampler

MakeSampler = Callable[[Space, int, int], Sampler]

# Each is made of space, seed and the largest number of trials.
SAMPLERS: Mapping[str, MakeSampler] = {
    "auto": Auto,
    "random": Random,
    "grid": Grid,
    "sobol": Sobol,
    "tpe": Tpe,
    "gp": Gp,
    "cmaes": Cmaes,
}


def num_points(name: str, space: Space, max_trials: int) -> int:
    """How many of at most `max_trials` points the sampler can propose: a grid may have fewer."""
    return GridPoints(space).num_points(max_trials) if name == "grid" else max_trials
