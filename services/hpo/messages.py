"""Translation between the contracts and the core: specs and results in, payloads out. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from drivetrain_schemas.envelope import MAX_EVENT_BYTES, encode_payload
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import FieldError, JobSpec, JobSubmit, Metric, Result, TrialOf
from drivetrain_schemas.spaces import flat
from drivetrain_schemas.specs import MAX_SPEC_BYTES, SPEC_BYTES_FIX, StartFrom, spec_bytes
from drivetrain_schemas.studies import StudyImport, StudySpec, StudySubmit
from drivetrain_schemas.study_specs import Limits, NoImprovement
from drivetrain_schemas.submission import problems
from drivetrain_schemas.trials import FinishedTrial, TrialTell
from services.hpo import spaces
from services.hpo.core import inputs, ranking, space
from services.hpo.core import limits as limiting
from services.hpo.core.objectives import NoWorth, Objectives, Safety, worth
from services.hpo.core.plan import Plan
from services.hpo.core.status import Numbers
from services.hpo.core.trials import EarlierStudy, Trial
from services.hpo.core.warm_start import placed
from services.hpo.store import JobEnd

NAME_LENGTH = 63
# The most characters of a `detail` in an event, and of the `reason` of a command.
MAX_DETAIL = 1024
MAX_REASON = 512
# A trial without a job cannot wait with a checkpoint, nor begin from another one's.
_NEED_JOBS = ("halving", "hyperband", "pasha", "population")
# A study's events and commands hold parts of its request, and less than this in addition.
EVENT_MARGIN_BYTES = 8 * 1024


def to_plan(spec: StudySpec, earlier: tuple[EarlierStudy, ...] = ()) -> Plan:
    return Plan(
        space=spaces.to_space(spec),
        goals=objectives_of(spec).goals,
        sampler=spec.sampler.value,
        seed=spec.seed,
        pruner=spec.pruner,
        max_steps=spec.job.max_steps or 0,
        earlier=earlier,
        is_external=spec.external,
    )


def to_numbers(spec: StudySpec) -> Numbers:
    return Numbers(spec.max_trials, spec.max_parallel_trials, to_limits(spec.limits))


def to_limits(limits: Limits) -> limiting.Limits:
    stalled = limits.no_improvement
    return limiting.Limits(
        device_hours=limits.device_hours,
        cost_usd=limits.cost_usd,
        hours=limits.hours,
        no_improvement=stalled.trials if stalled else None,
        min_change=stalled.min_change if stalled else 0.0,
        failed_trials=limits.failed_trials,
    )


def of_limits(limits: limiting.Limits) -> Limits:
    stalled = limits.no_improvement
    return Limits(
        device_hours=limits.device_hours,
        cost_usd=limits.cost_usd,
        hours=limits.hours,
        no_improvement=None
        if stalled is None
        else NoImprovement(trials=stalled, min_change=limits.min_change),
        failed_trials=limits.failed_trials,
    )


def objectives_of(spec: StudySpec) -> Objectives:
    metrics = (metric_of(spec), *spec.objectives)
    safety = spec.safety
    return Objectives(
        tuple((metric.name, metric.goal.value) for metric in metrics),
        Safety(safety.metric, safety.min, safety.max) if safety else None,
    )


def metric_of(spec: StudySpec) -> Metric:
    assert spec.job.metric is not None, "a study's contract demands the metric"
    return spec.job.metric


def read_spec(text: str) -> StudySpec:
    """A spec from a row, which a newer version may have written."""
    return StudySpec.model_validate_json(text, extra="ignore")


def trial_job(
    spec: StudySpec, number: int, point: space.Point, start_from: StartFrom | None = None
) -> JobSpec:
    """The study's job with the point's hyperparameters.

    Not checked again: `errors_of_trials` did so with the largest point before the study started.
    """
    suffix = f"-{number}"
    fields: dict[str, Any] = {
        "name": spec.name[: NAME_LENGTH - len(suffix)] + suffix,
        "hyperparameters": {**spec.job.hyperparameters, **point},
    }
    if start_from is not None:
        fields["start_from"] = start_from
    return spec.job.model_copy(update=fields)


def trial_command(tenant_id: str, trial: TrialOf, job: JobSpec) -> JobSubmit:
    """The same trial is always the same request."""
    request_id = request_id_of(trial.study_id, trial.number)
    job_id = job_id_of(tenant_id, trial.study_id, trial.number)
    return JobSubmit(request_id=request_id, spec=job, trial=trial, job_id=job_id)


def request_id_of(study_id: str, number: int) -> str:
    return f"{study_id}/{number}"


@lru_cache(maxsize=16_384)
def job_id_of(tenant_id: str, study_id: str, number: int) -> str:
    """The job of the trial, whether it was proposed or not; asked several times for each event."""
    return job_id_for(tenant_id, request_id_of(study_id, number))


def errors_of_search(spec: StudySpec) -> tuple[FieldError, ...]:
    """What is valid by itself and not together."""
    pruner = spec.pruner
    pauses = pruner is not None and (
        pruner.type in _NEED_JOBS or getattr(pruner, "mode", "") == "pause"
    )
    if spec.external and pruner is not None and pauses:
        message = f"is {pruner.type}, which pauses jobs, and an external study has none"
        fix = "write auto, asha with mode stop, median, percentile, patience or threshold"
        return (FieldError(field="pruner.type", message=message, fix=fix),)
    limits = [name for name in ("device_hours", "cost_usd") if getattr(spec.limits, name)]
    if spec.external and limits:
        message = "does not apply to an external study, whose trials hold no devices"
        return (FieldError(field=f"limits.{limits[0]}", message=message, fix="leave it out"),)
    return ()


def errors_of_trials(spec: StudySpec) -> tuple[FieldError, ...]:
    """The errors of the jobs that the study would submit, checked on the largest one."""
    try:
        largest = trial_job(spec, spec.max_trials - 1, spaces.largest_point(spec))
        job = JobSpec.model_validate(largest.model_dump())
    except ValidationError as error:
        return field_errors(error, within="job")
    if spec_bytes(job) > MAX_SPEC_BYTES:
        message = f"has {spec_bytes(job)} bytes as JSON with the hyperparameters of a trial"
        return (FieldError(field="job", message=message, fix=SPEC_BYTES_FIX),)
    of_job = tuple(
        problem.model_copy(update={"field": f"job.{problem.field}"}) for problem in problems(job)
    )
    return of_job or tuple(spaces.errors_of_space(spec))


def is_too_large(command: StudySubmit | StudyImport) -> bool:
    """Whether an event of the study could exceed what the bus carries."""
    return len(encode_payload(command)) > MAX_EVENT_BYTES - EVENT_MARGIN_BYTES


def to_ended(end: JobEnd, spec: StudySpec) -> inputs.Ended:
    """How a trial ended: from the result of its job, never from streamed samples."""
    if end.result is None:
        return inputs.Ended(end.number, None, end.detail)
    result = Result.model_validate_json(end.result)
    found = worth(_reported(result), objectives_of(spec))
    if isinstance(found, NoWorth):
        return inputs.Ended(end.number, None, found.detail)
    return inputs.Ended(end.number, found.values, is_safe=found.is_safe, safety=found.safety)


def _reported(result: Result) -> ranking.Reported:
    best = result.best
    return ranking.Reported(
        metrics=result.metrics,
        best_name=best.name if best else None,
        best_goal=best.goal.value if best else None,
        best_value=best.value if best else None,
    )


def to_earlier(spec: StudySpec, earlier: StudySpec, trials: Sequence[Trial]) -> EarlierStudy:
    """The safe trials of an earlier study, as far as they have a place in this study's space."""
    sign = 1.0 if metric_of(earlier).goal.value == "minimize" else -1.0
    finished = ((trial.point, sign * trial.values[0]) for trial in trials if trial.is_safe)
    return placed(spaces.to_space(spec), finished, earlier.job.hyperparameters)


def error_of_earlier(spec: StudySpec, earlier: StudySpec) -> tuple[str, str] | None:
    """Why its trials tell this study nothing, and the fix."""
    own, other = metric_of(spec), metric_of(earlier)
    if own != other:
        words = f"its trials are ranked by {other.name} ({other.goal.value})"
        return f"{words}, those of this study by {own.name} ({own.goal.value})", "leave it out"
    known = {*dict(spaces.to_space(earlier)), *earlier.job.hyperparameters}
    missing = [each.name for each in spaces.to_space(spec).dimensions if each.name not in known]
    if missing and not all(_is_conditional(spec, name) for name in missing):
        words = f"its trials have no value of {', '.join(missing):.300}"
        return words, "leave it out, or the parameter"
    return None


def _is_conditional(spec: StudySpec, name: str) -> bool:
    return bool(flat(spec.space)[name].conditions)


def to_import(spec: StudySpec, trials: Sequence[FinishedTrial]) -> inputs.Import:
    objectives = objectives_of(spec)
    return inputs.Import(
        tuple(
            (dict(one.hyperparameters), one.values, _is_safe(objectives, one.safety))
            for one in trials
        ),
        are_tolerated=True,
        safety=tuple(one.safety for one in trials) if objectives.safety else (),
    )


def to_told(spec: StudySpec, told: TrialTell) -> inputs.Ended | inputs.Stopped:
    if told.values is None and told.is_stopped:
        return inputs.Stopped(told.number, told.detail or "it ended early")
    if told.values is None:
        return inputs.Ended(told.number, None, told.detail or "it ended without a value")
    objectives = objectives_of(spec)
    safety = told.safety if objectives.safety else None
    is_safe = _is_safe(objectives, told.safety)
    return inputs.Ended(told.number, told.values, is_safe=is_safe, safety=safety)


def errors_of_imported(spec: StudySpec, trials: Sequence[FinishedTrial]) -> tuple[FieldError, ...]:
    """Why the study cannot begin with these: the first trial that could not be one of it."""
    own = spaces.to_space(spec)
    if trials and spec.pruner is not None and spec.pruner.type == "population":
        message = "is population, whose trials go on from each other's checkpoints: these have none"
        fix = "write another pruner, or warm_start with a study of this platform"
        return (FieldError(field="pruner.type", message=message, fix=fix),)
    if len(trials) > spec.max_trials:
        message = f"has {len(trials)} entries, and max_trials is {spec.max_trials}"
        return (FieldError(field="trials", message=message, fix="raise spec.max_trials"),)
    for place, trial in enumerate(trials):
        if not own.is_feasible(trial.hyperparameters):
            return (
                FieldError(
                    field=f"trials.{place}.hyperparameters",
                    message="is not a point of the space",
                    fix="give every active hyperparameter a value within its bounds",
                ),
            )
        if error := error_of_values(spec, trial.values):
            return (error.model_copy(update={"field": f"trials.{place}.values"}),)
    return ()


def error_of_values(spec: StudySpec, values: tuple[float, ...] | None) -> FieldError | None:
    num = 1 + len(spec.objectives)
    if values is None or len(values) == num:
        return None
    names = ", ".join(metric.name for metric in (metric_of(spec), *spec.objectives))
    return FieldError(
        field="values", message=f"has {len(values)} entries", fix=f"write {num}: of {names}"
    )


def _is_safe(objectives: Objectives, value: float | None) -> bool:
    return objectives.safety is None or objectives.safety.holds(value)
