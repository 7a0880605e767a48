"""Pruners: which trials of a study stop before their end, so that others get the devices.

A trial is judged at rungs: steps of its job at which the metric is measured.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Strict
from drivetrain_schemas.specs import Count, Real

EverySteps = Annotated[Count, Field(ge=1, le=2**40)]
MinSteps = Annotated[Count, Field(ge=1, le=2**40)]
ReductionFactor = Annotated[Count, Field(ge=2, le=16)]
_MinTrials = Annotated[Count, Field(ge=1, le=10_000)]
_WarmupSteps = Annotated[Count, Field(ge=0, le=2**40)]


class MedianPruner(Strict):
    """Stop a trial that is worse than the median of the others at a rung."""

    type: Literal["median"]
    every_steps: EverySteps
    min_trials: _MinTrials = 5
    warmup_steps: _WarmupSteps = 0


class PercentilePruner(Strict):
    """Stop a trial that is not among the best `percentile` percent at a rung."""

    type: Literal["percentile"]
    every_steps: EverySteps
    percentile: Annotated[Real, Field(ge=0, le=100)] = 25.0
    min_trials: _MinTrials = 5
    warmup_steps: _WarmupSteps = 0


class PatiencePruner(Strict):
    """Stop a trial that has not improved by `min_improvement` over its last `rungs` rungs."""

    type: Literal["patience"]
    every_steps: EverySteps
    rungs: Annotated[Count, Field(ge=1, le=1000)] = 3
    min_improvement: Annotated[Real, Field(ge=0, le=1e300)] = 0.0


class ThresholdPruner(Strict):
    """Stop a trial whose metric is below `lower` or above `upper` at a rung."""

    type: Literal["threshold"]
    every_steps: EverySteps
    lower: Real | None = None
    upper: Real | None = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> "ThresholdPruner":
        if self.lower is None and self.upper is None:
            raise Misfit("has neither lower nor upper", fix="write one of them, or both")
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise Misfit("is not above lower", fix=f"write more than {self.lower}", field="upper")
        return self


class HalvingPruner(Strict):
    """Synchronous successive halving: of each full rung the best 1 of `reduction_factor` go on."""

    type: Literal["halving"]
    min_steps: MinSteps
    reduction_factor: ReductionFactor = 3


class HyperbandPruner(Strict):
    """Successive halving in several brackets, which begin with different numbers of steps."""

    type: Literal["hyperband"]
    min_steps: MinSteps
    reduction_factor: ReductionFactor = 3


class AshaPruner(Strict):
    """Asynchronous successive halving: at a rung a trial stops unless it is among the best.

    With `mode` pause it waits there without devices, and goes on when it has become one of them.
    """

    type: Literal["asha"]
    min_steps: MinSteps
    reduction_factor: ReductionFactor = 3
    mode: Literal["stop", "pause"] = "stop"


class PashaPruner(Strict):
    """ASHA whose longest trials grow only while the ranking of the best still changes."""

    type: Literal["pasha"]
    min_steps: MinSteps
    reduction_factor: ReductionFactor = 3


class PopulationPruner(Strict):
    """Population-based training: the worst continue from the best one's checkpoint, perturbed.

    The worst `quantile` of `size` trials are replaced; each number is multiplied or divided by
    `factor`, and with probability `resample` a value is drawn again.
    """

    type: Literal["population"]
    every_steps: EverySteps
    size: Annotated[Count, Field(ge=2, le=1000)] = 8
    quantile: Annotated[Real, Field(gt=0, le=0.5)] = 0.25
    factor: Annotated[Real, Field(gt=1, le=10)] = 1.2
    resample: Annotated[Real, Field(ge=0, le=1)] = 0.25


class AutoPruner(Strict):
    """What suits most studies, with nothing to choose."""

    type: Literal["auto"]


Pruner = Annotated[
    MedianPruner
    | PercentilePruner
    | PatiencePruner
    | ThresholdPruner
    | HalvingPruner
    | HyperbandPruner
    | AshaPruner
    | PashaPruner
    | PopulationPruner
    | AutoPruner,
    Field(discriminator="type"),
]

MAX_RUNGS = 64


def check_pruner(pruner: Pruner, max_steps: int, max_trials: int) -> None:
    """Raises Misfit where it would judge trials too often, or could never stop one."""
    if isinstance(pruner, AutoPruner):
        return
    if isinstance(pruner, HalvingPruner | HyperbandPruner | AshaPruner | PashaPruner):
        _check_length("min_steps", pruner.min_steps, max_steps)
        _check_trials("reduction_factor", pruner.reduction_factor, max_trials)
        return
    _check_length("every_steps", pruner.every_steps, max_steps)
    num_rungs = (max_steps - 1) // pruner.every_steps
    if num_rungs > MAX_RUNGS:
        # The smallest number that goes at most MAX_RUNGS times into the steps before the last.
        least = (max_steps - 1) // (MAX_RUNGS + 1) + 1
        raise Misfit(
            f"judges each trial {num_rungs:,} times, and {MAX_RUNGS} is the most",
            fix=f"write {least:,} or more",
            field="pruner.every_steps",
        )
    if isinstance(pruner, MedianPruner | PercentilePruner):
        last = num_rungs * pruner.every_steps
        if pruner.warmup_steps >= last:
            fix = f"write less than {last:,}"
            raise Misfit("ends after the last rung", fix=fix, field="pruner.warmup_steps")
        _check_trials("min_trials", pruner.min_trials + 1, max_trials)
    if isinstance(pruner, PatiencePruner) and pruner.rungs >= num_rungs:
        fix = "write fewer" if num_rungs > 1 else "and pruner.every_steps is too large: write less"
        text = f"is not below the number of rungs of a trial, {num_rungs}"
        raise Misfit(text, fix=fix, field="pruner.rungs")
    if isinstance(pruner, PopulationPruner):
        _check_trials("size", pruner.size, max_trials)
        if pruner.quantile * pruner.size < 1:
            raise Misfit(
                f"of {pruner.size} trials is less than one trial",
                fix=f"write {1 / pruner.size:.3g} or more, or a larger size",
                field="pruner.quantile",
            )


def _check_length(field: str, steps: int, max_steps: int) -> None:
    if steps >= max_steps:
        fix = f"write less than job.max_steps, {max_steps:,}"
        raise Misfit("is the whole length of a trial", fix=fix, field=f"pruner.{field}")


def _check_trials(field: str, num_needed: int, max_trials: int) -> None:
    if num_needed > max_trials:
        raise Misfit(
            f"needs {num_needed:,} trials, and max_trials is {max_trials:,}",
            fix="write less, or a larger max_trials",
            field=f"pruner.{field}",
        )
