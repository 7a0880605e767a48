"""`drivetrain job stop | pause | resume | annotate`: what changes a job that exists."""

from typing import Annotated, Any

import typer

from drivetrain.cli import session
from drivetrain.cli.accepted import write_accepted
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Format
from drivetrain.cli.session import JobArgument, OutputOption, example, segment

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; shown with the job.")]


def stop(
    job: JobArgument,
    reason: ReasonOption = "",
    checkpoint: Annotated[
        bool,
        typer.Option(help="Save a last checkpoint, or end without saving anything."),
    ] = True,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a job early; it counts as stopped, not as failed. Its checkpoints are kept."""
    body = {"reason": reason, "checkpoint": checkpoint}
    change(job, "stop", body, "is being stopped", output)


def pause(job: JobArgument, reason: ReasonOption = "", output: OutputOption = Format.TABLE) -> None:
    """Save a checkpoint and give up the job's slots, until it is resumed."""
    change(job, "pause", {"reason": reason}, "is being paused", output)


def resume(job: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """Queue a paused job again; it continues from its newest checkpoint."""
    change(job, "resume", {}, "is resumed", output)


def annotate(
    job: JobArgument,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Add this tag; may be repeated.")
    ] = None,
    remove_tags: Annotated[
        list[str] | None, typer.Option("--remove-tag", help="Take this tag away.")
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", help='Replaces the note; "" takes it away.')
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help='Replaces the project; "" takes it away.')
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change the tags, the note or the project of a job, also after its end."""
    wanted = {"add_tags": tags, "remove_tags": remove_tags, "note": note, "project": project}
    body = {name: value for name, value in wanted.items() if value is not None and value != []}
    if not body:
        raise InvalidInput("nothing is to be changed", fix="give --tag, --note or --project")
    change(job, "annotate", body, "is annotated", output)


def change(name: str, verb: str, body: dict[str, Any], done: str, output: Format) -> None:
    with session.connect() as gateway:
        job_id = find_job(gateway, name, to_change=True, also_ended=verb == "annotate")
        answer = gateway.post(f"/v1/jobs/{segment(job_id)}/{verb}", body)
    write_accepted(answer, job_id, done, output)


def register(app: typer.Typer) -> None:
    """Add these verbs to `drivetrain job`."""
    app.command(epilog=example("drivetrain job stop digits --reason 'good enough'"))(stop)
    app.command(epilog=example("drivetrain job pause digits"))(pause)
    app.command(epilog=example("drivetrain job resume digits"))(resume)
    app.command(epilog=example("drivetrain job annotate digits --tag good --note 'to compare'"))(
        annotate
    )
