"""What the contract of a job allows, because accepted jobs may have it, and a new job may not."""

from collections.abc import Iterator

from drivetrain_schemas import placeholders
from drivetrain_schemas.jobs import FieldError, JobSpec
from drivetrain_schemas.specs import METRIC_NAME_WORDS, is_metric_name


def problems(spec: JobSpec) -> Iterator[FieldError]:
    """Why a request for this job is refused."""
    for name in placeholders.unknown(spec.command, spec.hyperparameters):
        yield FieldError(
            field="command",
            message=placeholders.no_hyperparameter(name),
            fix=placeholders.fix(name),
        )
    for first, second in placeholders.sharing_a_variable(spec.hyperparameters):
        yield FieldError(
            field=f"hyperparameters.{second}",
            message=f"has the same variable as {first}: {placeholders.variable(second)}",
            fix="give it a name that differs in more than its capitals",
        )
    if spec.metric is not None and not is_metric_name(spec.metric.name):
        yield FieldError(
            field="metric.name",
            message=f"{spec.metric.name!a} holds invisible characters",
            fix=f"write {METRIC_NAME_WORDS}",
        )
