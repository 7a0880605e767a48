"""`drivetrain job rerun`: the same job again, and what differs."""

import sys
import uuid
from contextlib import redirect_stdout
from typing import Annotated

import typer

from drivetrain.cli import session
from drivetrain.cli.logs import Wanted, follow_logs
from drivetrain.cli.made import WaitOption, announce, conclude
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Format, write_note
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
    wait: WaitOption = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a job again: the same specification, with the same code and seed.

    What may differ all the same is printed. With --wait, the exit code is 1 if it does not succeed.
    """
    with session.connect() as gateway:
        job_id = find_job(gateway, job)
        path = f"/v1/jobs/{segment(job_id)}"
        found = gateway.get(f"{path}/reproduce")
        body = {"request_id": request_id or uuid.uuid4().hex}
        made = gateway.post(f"{path}/rerun", body)
        announce(gateway, made, output)
        for one in found["would_differ"]:
            write_note(f"may differ: {one['what']}: was {one['was']}; now {one['now']}")
        if follow:
            with redirect_stdout(sys.stdout if output is Format.TABLE else sys.stderr):
                follow_logs(gateway, made["job_id"], Wanted(), 1000)
        conclude(gateway, made, output, wait=wait)


def register(app: typer.Typer) -> None:
    """Add this verb to `drivetrain job`."""
    app.command(epilog=example("drivetrain job rerun digits --follow"))(rerun)
