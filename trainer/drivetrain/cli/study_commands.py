"""`drivetrain study pause | resume | stop | extend`: what changes a study that runs."""

from typing import Annotated, Any, Literal

import typer

from drivetrain.cli import session
from drivetrain.cli.accepted import write_accepted
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.names import find_study
from drivetrain.cli.output import Format
from drivetrain.cli.session import OutputOption, StudyArgument, example, segment

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; shown with the study.")]


def pause(
    study: StudyArgument,
    reason: ReasonOption = "",
    trials: Annotated[
        Literal["finish", "pause"],
        typer.Option("--trials", help="Its running trials: go on to their end, or pause too."),
    ] = "finish",
    output: OutputOption = Format.TABLE,
) -> None:
    """Start no further trials until the study is resumed."""
    change(study, "pause", {"reason": reason, "trials": trials}, "is paused", output)


def resume(study: StudyArgument, output: OutputOption = Format.TABLE) -> None:
    """Go on with a paused study."""
    change(study, "resume", {}, "goes on", output)


def stop(
    study: StudyArgument, reason: ReasonOption = "", output: OutputOption = Format.TABLE
) -> None:
    """End a study now with what it has found. Its running trials are stopped; results are kept."""
    change(study, "stop", {"reason": reason}, "is ending", output)


def extend(
    study: StudyArgument,
    max_trials: Annotated[
        int | None, typer.Option("--max-trials", min=1, help="How many trials in all.")
    ] = None,
    max_parallel_trials: Annotated[
        int | None, typer.Option("--max-parallel-trials", min=1, help="At the same time.")
    ] = None,
    device_hours: Annotated[
        float | None, typer.Option("--device-hours", min=0, help="End the study at so many.")
    ] = None,
    cost_usd: Annotated[
        float | None, typer.Option("--cost-usd", min=0, help="End it at this cost in dollars.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", min=0, help="End it after so many hours.")
    ] = None,
    no_improvement: Annotated[
        int | None,
        typer.Option("--no-improvement", min=1, help="End it after so many trials in a row."),
    ] = None,
    failed_trials: Annotated[
        int | None, typer.Option("--failed-trials", min=1, help="End it when so many have failed.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change a study's numbers of trials or its limits. A completed study goes on by more trials.

    Limits that are not given stay.
    """
    limits = _given(
        device_hours=device_hours,
        cost_usd=cost_usd,
        hours=hours,
        no_improvement=None if no_improvement is None else {"trials": no_improvement},
        failed_trials=failed_trials,
    )
    wanted = _given(
        max_trials=max_trials,
        max_parallel_trials=max_parallel_trials,
        changed_limits=limits or None,
    )
    if not wanted:
        raise InvalidInput(
            "nothing is to be changed", fix="give --max-trials, or another option: see --help"
        )
    change(study, "change", wanted, "is changed", output)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def change(name: str, verb: str, body: dict[str, Any], done: str, output: Format) -> None:
    with session.connect() as gateway:
        study_id = find_study(gateway, name, to_change=True)
        answer = gateway.post(f"/v1/studies/{segment(study_id)}/{verb}", body)
    write_accepted(answer, study_id, done, output)


def register(app: typer.Typer) -> None:
    """Add these verbs to `drivetrain study`."""
    app.command(epilog=example("drivetrain study pause latest --trials pause"))(pause)
    app.command(epilog=example("drivetrain study resume latest"))(resume)
    app.command(epilog=example("drivetrain study stop latest --reason 'good enough'"))(stop)
    app.command(epilog=example("drivetrain study extend latest --max-trials 200"))(extend)
