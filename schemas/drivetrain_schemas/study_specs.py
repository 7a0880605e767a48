"""Study specs: how people and other systems describe a search. Immutable once accepted, except
for the numbers of trials and the limits, which `study.change` replaces.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from drivetrain_schemas.base import Misfit, Strict
from drivetrain_schemas.ids import StudyId
from drivetrain_schemas.pruners import PopulationPruner, Pruner, check_pruner
from drivetrain_schemas.spaces import Constraints, Integer, Uniform, WrittenSpace, check_space, flat
from drivetrain_schemas.specs import Count, JobSpec, Metric, MetricName, Name, Real

MAX_TRIALS = 100_000
MAX_PARALLEL_TRIALS = 1000

NumTrials = Annotated[Count, Field(ge=1, le=MAX_TRIALS)]
NumParallelTrials = Annotated[Count, Field(ge=1, le=MAX_PARALLEL_TRIALS)]


class SamplerName(StrEnum):
    RANDOM = "random"
    GRID = "grid"
    SOBOL = "sobol"
    TPE = "tpe"
    GP = "gp"
    CMAES = "cmaes"
    AUTO = "auto"


class Safety(Strict):
    """A metric that must stay within bounds: a trial whose last value breaks them does not win."""

    metric: MetricName
    min: Real | None = None
    max: Real | None = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> "Safety":
        if self.min is None and self.max is None:
            raise Misfit("has neither min nor max", fix="write one of them, or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise Misfit("is below min", fix=f"write {self.min} or more", field="max")
        return self


class NoImprovement(Strict):
    """End the study when `trials` ended in a row without a best value better by `min_change`."""

    trials: NumTrials
    min_change: Annotated[Real, Field(ge=0, le=1e300)] = 0.0


class Limits(Strict):
    """When a study ends before its last trial. Its running trials are then stopped."""

    device_hours: Annotated[Real, Field(gt=0, le=1e9)] | None = None
    cost_usd: Annotated[Real, Field(gt=0, le=1e9)] | None = None
    hours: Annotated[Real, Field(gt=0, le=87_600)] | None = None
    no_improvement: NoImprovement | None = None
    failed_trials: NumTrials | None = None


class StudySpec(Strict):
    """What to search: a job, the space of its hyperparameters, and the number of trials.

    A grid may be written without `max_trials`: then it has all its points. A study with `external`
    runs no jobs: its trials are asked for and told about by somebody else. Instead of `job` it may
    be written with `metric`, and with `max_steps` where it has a pruner.
    """

    name: Name
    job: JobSpec
    space: WrittenSpace
    sampler: SamplerName = SamplerName.AUTO
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    max_trials: NumTrials
    max_parallel_trials: NumParallelTrials = 1
    pruner: Pruner | None = None
    objectives: Annotated[tuple[Metric, ...], Field(max_length=3)] = ()
    safety: Safety | None = None
    constraints: Constraints = ()
    limits: Limits = Limits()
    warm_start: Annotated[tuple[StudyId, ...], Field(max_length=64)] = ()
    checkpoint_stopped: Annotated[bool, Field(strict=True)] = False
    external: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="before")
    @classmethod
    def _without_a_job(cls, data: Any) -> Any:
        if not _is_without_a_job(data):
            return data
        job = {name: data[name] for name in _OF_JOB if data.get(name) is not None}
        rest = {name: value for name, value in data.items() if name not in _OF_JOB}
        return {**rest, "job": {"name": data.get("name"), "command": ["external"], **job}}

    @model_validator(mode="before")
    @classmethod
    def _counts_the_points_of_a_grid(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("max_trials") is not None:
            return data
        num_points = _points_of_a_grid(data) if data.get("sampler") == SamplerName.GRID else None
        if num_points is None:
            return data
        if num_points > MAX_TRIALS:
            fix = f"write max_trials (at most {MAX_TRIALS:,}), or fewer points"
            raise Misfit(f"is a grid of {num_points:,} points", fix=fix, field="space")
        return {**data, "max_trials": num_points}

    @model_validator(mode="after")
    def _can_be_ranked(self) -> "StudySpec":
        if self.job.metric is None:
            raise Misfit(
                "is missing: trials are ranked by it",
                fix="add {name: ..., goal: minimize or maximize}",
                field="job.metric",
            )
        return self

    @model_validator(mode="after")
    def _has_a_space_that_fits_together(self) -> "StudySpec":
        check_space(self.space, self.constraints)
        if self.sampler is SamplerName.GRID:
            for placed in flat(self.space).values():
                if isinstance(placed.parameter, Uniform | Integer) and placed.parameter.num is None:
                    message = "is missing: a grid needs a number of points"
                    raise Misfit(message, fix="add it", field=f"{placed.path}.num")
        return self

    @model_validator(mode="after")
    def _has_different_objectives(self) -> "StudySpec":
        seen = {self.job.metric.name} if self.job.metric else set()
        for place, objective in enumerate(self.objectives):
            if objective.name in seen:
                raise Misfit(
                    f"repeats {objective.name}",
                    fix="name another metric; the metric itself is the first objective",
                    field=f"objectives.{place}.name",
                )
            seen.add(objective.name)
        return self

    @model_validator(mode="after")
    def _has_rungs(self) -> "StudySpec":
        if self.pruner is None:
            return self
        if self.job.max_steps is None:
            fix = "add it: a pruner judges trials on the way to it"
            raise Misfit("is missing", fix=fix, field="job.max_steps")
        check_pruner(self.pruner, self.job.max_steps, self.max_trials)
        if isinstance(self.pruner, PopulationPruner) and not self.external:
            every_steps = self.job.checkpoint.every_steps
            if every_steps is None or every_steps > self.pruner.every_steps:
                raise Misfit(
                    "saves too seldom: a trial is replaced by a copy of a running one",
                    fix=f"write pruner.every_steps, {self.pruner.every_steps}, or less",
                    field="job.checkpoint.every_steps",
                )
        return self

    # The last one, so that it wraps the others.
    @model_validator(mode="wrap")
    @classmethod
    def _is_refused_as_written(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not _is_without_a_job(data):
            return handler(data)
        try:
            return handler(data)
        except ValidationError as error:
            found = [_as_written(item) for item in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(error.title, found) from None


# What an external study has beside its fields, in the place of a job.
_OF_JOB = ("metric", "max_steps")


def _is_without_a_job(data: Any) -> bool:
    return isinstance(data, dict) and data.get("external") is True and "job" not in data


def _as_written(item: Any) -> InitErrorDetails:
    """A mistake in the job that was made of the study's own fields, as one in these."""
    location, context = tuple(item["loc"]), dict(item.get("ctx", {}))
    if location[:1] == ("job",) and location[1:2] and location[1] in _OF_JOB:
        location = location[1:]
    misfit = context.get("error")
    if isinstance(misfit, Misfit) and misfit.field in [f"job.{name}" for name in _OF_JOB]:
        field = misfit.field.removeprefix("job.")
        context["error"] = Misfit(str(misfit), fix=misfit.fix, field=field)
    return {"type": item["type"], "loc": location, "input": item["input"], "ctx": context}


def _points_of_a_grid(data: dict[Any, Any]) -> int | None:
    """How many combinations a written grid has at most; None where its space is not valid."""
    return _combinations(data.get("space"))


def _combinations(parameters: Any) -> int | None:
    if not isinstance(parameters, dict):
        return None
    total = 1
    for parameter in parameters.values():
        written = parameter.model_dump() if isinstance(parameter, Strict) else parameter
        if not isinstance(written, dict):
            return None
        values, num = written.get("values"), written.get("num")
        if "parameters" in written:
            inner = _combinations(written["parameters"])
            if inner is None:
                return None
            total *= inner
        elif isinstance(values, list | tuple):
            total *= len(values)
        elif isinstance(num, int):
            total *= num
        elif "value" not in written:
            return None
    return total
