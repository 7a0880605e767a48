"""`drivetrain job rerun`: the same job again, and what differs."""

import uuid
from typing import Annotated

import typer

from drivetrain.cli import session
from drivetrain.cli.logs import Wanted, follow_logs
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Format, write_line, write_note, write_value
from drivetrain.cli.pages import page_link
from drivetrain.cli.session import (
    JobArgument,
    OutputOption,
    RequestIdOption,
    example,
    segment,
)


def rerun(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print its output until it ends.")
    ] = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a job again: the same specification, with the same code and seed.

    What may differ all the same is printed.
    """
    with session.connect() as gateway:
        job_id = find_job(gateway, job)
        path = f"/v1/jobs/{segment(job_id)}"
        found = gateway.get(f"{path}/reproduce")
        body = {"request_id": request_id or uuid.uuid4().hex}
        made = gateway.post(f"{path}/rerun", body)
        if output is Format.TABLE:
            write_line(made["job_id"])
            write_line(page_link(gateway, made["job_url"]))
        else:
            write_value(made, output)
        for one in found["would_differ"]:
            write_note(f"may differ: {one['what']}: was {one['was']}; now {one['now']}")
        if follow:
            follow_logs(gateway, made["job_id"], Wanted(), 1000)


def register(app: typer.Typer) -> None:
    """Add this verb to `drivetrain job`."""
    app.command(epilog=example("drivetrain job rerun digits --follow"))(rerun)
