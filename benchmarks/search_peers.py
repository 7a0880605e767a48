"""Optuna's samplers and Hyperband with their defaults, behind the interface of the simulation."""

import math
import warnings
from collections.abc import Callable, Mapping

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from benchmarks.lcbench import EPOCHS
from benchmarks.search_simulation import SPACE
from services.hpo.core.space import Integer, Scalar, Space, Uniform

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

SAMPLERS: Mapping[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "CMA-ES": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "GP": lambda seed: optuna.samplers.GPSampler(seed=seed),
}


class OptunaSearcher:
    rungs: tuple[int, ...] = ()

    def __init__(self, sampler: str, seed: int, space: Space = SPACE) -> None:
        self._distributions = _distributions(space)
        self._study = optuna.create_study(direction="maximize", sampler=SAMPLERS[sampler](seed))

    def ask(self) -> tuple[object, Mapping[str, Scalar]]:
        trial = self._study.ask(self._distributions)
        return trial, trial.params

    def goes_on(self, key: object, epoch: int, accuracy: float) -> bool:
        return True

    def tell(self, key: object, accuracy: float) -> None:
        assert isinstance(key, optuna.Trial)
        if math.isfinite(accuracy):
            self._study.tell(key, accuracy)
        else:
            self._study.tell(key, state=optuna.trial.TrialState.FAIL)


class HyperbandSearcher(OptunaSearcher):
    """With `HyperbandPruner`. It decides at `rungs` alone, so no other epochs are reported."""

    rungs = (1, 3, 9, 27)

    def __init__(self, sampler: str, seed: int) -> None:
        self._distributions = _distributions(SPACE)
        # A trial's bracket follows from its number and the study's name, which is drawn otherwise.
        self._study = optuna.create_study(
            study_name=f"{sampler}-{seed}",
            direction="maximize",
            sampler=SAMPLERS[sampler](seed),
            pruner=optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS),
        )

    def goes_on(self, key: object, epoch: int, accuracy: float) -> bool:
        assert isinstance(key, optuna.Trial)
        key.report(accuracy, epoch)
        if not key.should_prune():
            return True
        self._study.tell(key, state=optuna.trial.TrialState.PRUNED)
        return False


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    distributions: dict[str, BaseDistribution] = {}
    for name, parameter in space:
        if isinstance(parameter, Integer):
            distributions[name] = IntDistribution(parameter.low, parameter.high, log=parameter.log)
        elif isinstance(parameter, Uniform):
            distributions[name] = FloatDistribution(
                parameter.low, parameter.high, log=parameter.log
            )
        else:
            distributions[name] = CategoricalDistribution(parameter.values)
    return distributions
