"""`drivetrain report`: log metrics from any program that runs as a job."""

from typing import Annotated

import typer

from drivetrain.cli.errors import InvalidInput, Unreachable


def report(
    values: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Metrics: loss=0.3 accuracy=0.9")
    ],
    step: Annotated[int, typer.Option("--step", min=0, help="The step they belong to.")],
) -> None:
    """Log metrics from inside a job, in any language."""
    from drivetrain.reporting import report as report_values

    metrics = dict(_metric(text) for text in values)
    try:
        is_taken = report_values(metrics, step)
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
