"""The pruners by the class of their spec.

A pruner keeps no state: it judges from the stored trials alone, so a restart at any point decides
the same again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from drivetrain_schemas.pruners import (
    AshaPruner,
    AutoPruner,
    HalvingPruner,
    HyperbandPruner,
    MedianPruner,
    PashaPruner,
    PatiencePruner,
    PercentilePruner,
    PopulationPruner,
    ThresholdPruner,
)
from services.hpo.core.pruners.asha import AshaPause, AshaStop
from services.hpo.core.pruners.auto import Auto, steps_of_auto
from services.hpo.core.pruners.base import equal_steps, growing_steps
from services.hpo.core.pruners.halving import halving
from services.hpo.core.pruners.hyperband import hyperband
from services.hpo.core.pruners.pasha import Pasha
from services.hpo.core.pruners.patience import Patience
from services.hpo.core.pruners.percentile import Percentile
from services.hpo.core.pruners.population import Explore, Population
from services.hpo.core.pruners.threshold import Threshold
from services.hpo.core.space import Space
from services.hpo.core.strategies import Pruner

# (spec, max_steps, max_trials, seed, space)
Build = Callable[[Any, int, int, int, Space], Pruner]


def _median(spec: MedianPruner, max_steps: int, *_: object) -> Pruner:
    return Percentile(_after_warmup(spec, max_steps), 50.0, spec.min_trials)


def _percentile(spec: PercentilePruner, max_steps: int, *_: object) -> Pruner:
    return Percentile(_after_warmup(spec, max_steps), spec.percentile, spec.min_trials)


def _after_warmup(spec: MedianPruner | PercentilePruner, max_steps: int) -> tuple[int, ...]:
    steps = equal_steps(spec.every_steps, max_steps)
    return tuple(step for step in steps if step > spec.warmup_steps)


def _patience(spec: PatiencePruner, max_steps: int, *_: object) -> Pruner:
    return Patience(equal_steps(spec.every_steps, max_steps), spec.rungs, spec.min_improvement)


def _threshold(spec: ThresholdPruner, max_steps: int, *_: object) -> Pruner:
    return Threshold(equal_steps(spec.every_steps, max_steps), spec.lower, spec.upper)


def _halving(spec: HalvingPruner, max_steps: int, max_trials: int, *_: object) -> Pruner:
    steps = growing_steps(spec.min_steps, spec.reduction_factor, max_steps)
    return halving(steps, spec.reduction_factor, max_trials)


def _hyperband(spec: HyperbandPruner, max_steps: int, max_trials: int, *_: object) -> Pruner:
    steps = growing_steps(spec.min_steps, spec.reduction_factor, max_steps)
    return hyperband(steps, spec.reduction_factor, max_trials)


def _asha(spec: AshaPruner, max_steps: int, max_trials: int, *_: object) -> Pruner:
    steps = growing_steps(spec.min_steps, spec.reduction_factor, max_steps)
    if spec.mode == "stop":
        return AshaStop(steps, spec.reduction_factor)
    return AshaPause(steps, spec.reduction_factor, max_trials)


def _pasha(spec: PashaPruner, max_steps: int, max_trials: int, *_: object) -> Pruner:
    steps = growing_steps(spec.min_steps, spec.reduction_factor, max_steps)
    return Pasha(steps, spec.reduction_factor, max_trials)


def _population(
    spec: PopulationPruner, max_steps: int, max_trials: int, seed: int, space: Space
) -> Pruner:
    explore = Explore(spec.factor, spec.resample)
    steps = equal_steps(spec.every_steps, max_steps)
    return Population(steps, spec.size, spec.quantile, explore, max_trials, seed, space)


def _auto(spec: AutoPruner, max_steps: int, *_: object) -> Pruner:
    return Auto(steps_of_auto(max_steps), max_steps)


PRUNERS: Mapping[type, Build] = {
    MedianPruner: _median,
    PercentilePruner: _percentile,
    PatiencePruner: _patience,
    ThresholdPruner: _threshold,
    HalvingPruner: _halving,
    HyperbandPruner: _hyperband,
    AshaPruner: _asha,
    AutoPruner: _auto,
    PashaPruner: _pasha,
    PopulationPruner: _population,
}
