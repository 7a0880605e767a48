"""Translation between the contracts and the core: specs and results in, payloads out. Pure."""

import json
from collections.abc import Mapping

from pydantic import ValidationError

from drivetrain_schemas.envelope import MAX_EVENT_BYTES, encode_payload
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import FieldError, JobSpec, JobSubmit, Metric, Result, TrialOf
from drivetrain_schemas.specs import MAX_SPEC_BYTES, SPEC_BYTES_FIX, spec_bytes
from drivetrain_schemas.studies import StudySpec, StudySubmit
from drivetrain_schemas.submission import problems
from services.hpo import spaces
from services.hpo.core import ranking, search, space
from services.hpo.core.objectives import NoWorth, Objectives, Safety, Worth, worth
from services.hpo.store import EndedTrial

NAME_LENGTH = 63
UNSUPPORTED = (
    "pruner",
    "objectives",
    "safety",
    "limits",
    "warm_start",
    "checkpoint_stopped",
    "external",
)
# A study's events and commands hold parts of its request, and less than this in addition.
EVENT_MARGIN_BYTES = 8 * 1024


def to_search(spec: StudySpec) -> search.Search:
    points = spaces.to_space(spec)
    return search.Search(
        space=points,
        sampler=spec.sampler.value,
        seed=spec.seed,
        num_trials=search.num_trials(spec.sampler.value, points, spec.max_trials),
        max_parallel_trials=spec.max_parallel_trials,
        goal=metric_of(spec).goal.value,
    )


def metric_of(spec: StudySpec) -> Metric:
    assert spec.job.metric is not None, "a study's contract demands the metric"
    return spec.job.metric


def read_spec(text: str) -> StudySpec:
    """A spec from a row, which a newer version may have written."""
    return StudySpec.model_validate_json(text, extra="ignore")


def trial_job(spec: StudySpec, number: int, point: space.Point) -> JobSpec:
    """The study's job with the point's hyperparameters; raises ValidationError."""
    suffix = f"-{number}"
    fields = spec.job.model_dump()
    fields["name"] = spec.name[: NAME_LENGTH - len(suffix)] + suffix
    fields["hyperparameters"] = {**spec.job.hyperparameters, **point}
    return JobSpec.model_validate(fields)


def trial_command(tenant_id: str, study_id: str, number: int, job: JobSpec) -> JobSubmit:
    """The same trial is always the same request."""
    request_id = f"{study_id}/{number}"
    return JobSubmit(
        request_id=request_id,
        spec=job,
        trial=TrialOf(study_id=study_id, number=number),
        job_id=job_id_for(tenant_id, request_id),
    )


def unsupported(spec: StudySpec) -> tuple[FieldError, ...]:
    """What the contract has and this release of the service does not do."""
    written = spec.model_dump(exclude_defaults=True)
    fields = [name for name in UNSUPPORTED if name in written]
    # The other samplers learn from results, which the service does not give them yet.
    if spec.sampler.value not in ("grid", "random"):
        fields.append("sampler")
    return tuple(
        FieldError(field=name, message="is not supported yet", fix="leave it out")
        for name in fields
    )


def errors_of_trials(spec: StudySpec) -> tuple[FieldError, ...]:
    """The errors of the jobs that the study would submit, checked on the largest one."""
    try:
        job = trial_job(spec, spec.max_trials - 1, spaces.largest_point(spec))
    except ValidationError as error:
        return field_errors(error, within="job")
    if spec_bytes(job) > MAX_SPEC_BYTES:
        message = f"has {spec_bytes(job)} bytes as JSON with the hyperparameters of a trial"
        return (FieldError(field="job", message=message, fix=SPEC_BYTES_FIX),)
    of_job = tuple(
        problem.model_copy(update={"field": f"job.{problem.field}"}) for problem in problems(job)
    )
    return of_job or tuple(spaces.errors_of_space(spec))


def is_too_large(command: StudySubmit) -> bool:
    """Whether an event of the study could exceed what the bus carries."""
    return len(encode_payload(command)) > MAX_EVENT_BYTES - EVENT_MARGIN_BYTES


def objectives_of(spec: StudySpec) -> Objectives:
    metrics = (metric_of(spec), *spec.objectives)
    asked = spec.safety
    safety = Safety(asked.metric, asked.min, asked.max) if asked else None
    return Objectives(tuple((each.name, each.goal.value) for each in metrics), safety)


def to_ended(trial: EndedTrial, spec: StudySpec) -> search.Ended:
    """How a trial ended: from the result of its job, never from streamed samples."""
    number = trial.number
    if trial.result is None:
        return search.Ended(number, None, trial.detail, trial.is_refused)
    result = Result.model_validate_json(trial.result)
    match worth(_reported(result), objectives_of(spec)):
        case NoWorth(detail):
            return search.Ended(number, None, detail)
        case Worth(values):
            return search.Ended(number, values[0])


def dump_point(point: Mapping[str, space.Scalar]) -> str:
    return json.dumps(point, ensure_ascii=False)


def load_point(text: str) -> space.Point:
    point: space.Point = json.loads(text)
    return point


def _reported(result: Result) -> ranking.Reported:
    best = result.best
    return ranking.Reported(
        metrics=result.metrics,
        best_name=best.name if best else None,
        best_goal=best.goal.value if best else None,
        best_value=best.value if best else None,
    )
