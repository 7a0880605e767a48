"""`drivetrain report`: log metrics from any program that runs as a job."""

import re
from typing import Annotated

import typer

from drivetrain.cli.errors import InvalidInput, Unreachable


def report(
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Metrics: loss=0.3 accuracy=0.9"),
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="The step they belong to.")
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option("--phase", help="What begins now and makes no step, until the next report."),
    ] = None,
    alert: Annotated[
        str | None, typer.Option("--alert", metavar="TITLE", help="Raise an alert of the job.")
    ] = None,
) -> None:
    """Log metrics from inside a job, in any language."""
    from drivetrain.messages import PHASE_PATTERN
    from drivetrain.reporting import report as report_values

    if values and step is None:
        raise InvalidInput("metrics belong to a step", fix="add --step NUMBER")
    if phase is not None and not re.fullmatch(PHASE_PATTERN, phase):
        fix = "write lower-case letters, digits and underscores, such as evaluation"
        raise InvalidInput(f"{phase!r:.80} is not the name of a phase", fix=fix)
    metrics = dict(_metric(text) for text in values or ())
    try:
        is_taken = report_values(metrics, step, phase, alert)
    except OSError as error:
        raise Unreachable(f"the pod does not accept reports: {error}") from error
    if not is_taken:
        raise InvalidInput(
            "this is not a job on the platform, or a value was invalid",
            fix="call `drivetrain report` from a job's command",
        )


def _metric(text: str) -> tuple[str, float]:
    name, equals, number = text.rpartition("=")
    fix = "write NAME=NUMBER, such as loss=0.3"
    if not equals or not name:
        raise InvalidInput(f"{text!r:.200} is not a metric", fix=fix)
    try:
        # NaN and the infinities are accepted: diverged training raises an alert.
        value = float(number)
    except ValueError:
        raise InvalidInput(f"{text!r:.200}: {number!r:.80} is not a number", fix=fix) from None
    return name, value
