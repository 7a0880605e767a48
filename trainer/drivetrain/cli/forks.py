"""`drivetrain job fork`: a new job that continues from a checkpoint of another one."""

import uuid
from typing import Annotated, Any

import typer

from drivetrain.cli import session
from drivetrain.cli.checkpoints import WHICH_HELP, checkpoint_of_job
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.made import WaitOption, announce, conclude
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Format, write_note
from drivetrain.cli.session import (
    JobArgument,
    OutputOption,
    RequestIdOption,
    SetOption,
    example,
    segment,
)
from drivetrain_schemas.jobs import JobSpec


def fork(
    job: JobArgument,
    which: Annotated[str, typer.Option("--from", metavar="WHICH", help=WHICH_HELP)] = "latest",
    settings: SetOption = None,
    wait: WaitOption = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a job like this one that continues from one of its checkpoints.

    The checkpoint is pinned. A name that is no field of a job is a hyperparameter: --set lr=0.1.
    With --wait, the exit code is 1 if the job does not succeed.
    """
    from drivetrain.cli.specs import check_job

    with session.connect() as gateway:
        job_id = find_job(gateway, job)
        source = gateway.get(f"/v1/jobs/{segment(job_id)}")
        checkpoint = checkpoint_of_job(gateway, job_id, which)
        if source["spec"] is None or checkpoint["manifest_key"] is None:
            raise InvalidInput(f"{job_id}: its specification or checkpoint is not known yet")
        directory = checkpoint["manifest_key"].split("/")[-2]
        spec: dict[str, Any] = {
            **{name: value for name, value in source["spec"].items() if name != "rerun_of"},
            "start_from": {"job_id": job_id, "checkpoint": directory},
        }
        check_job(spec, [_full(setting) for setting in settings or ()])
        gateway.post(f"/v1/checkpoints/{segment(checkpoint['checkpoint_id'])}/pin")
        chosen = request_id or uuid.uuid4().hex
        made = gateway.submit("/v1/jobs", chosen, spec, secrets_of=job_id)
        announce(gateway, made, output)
        if settings:
            write_note(
                "The state of an optimizer comes from the checkpoint, its learning rate too: a "
                "script that takes it from run.hyperparameters sets it again after run.resume(...)."
            )
        conclude(gateway, made, output, wait=wait)


def register(app: typer.Typer) -> None:
    """Add this verb to `drivetrain job`."""
    app.command(epilog=example("drivetrain job fork digits --from best --set lr=0.1"))(fork)


def _full(setting: str) -> str:
    """The assignment with its whole path."""
    name = setting.partition("=")[0]
    is_field = name.partition(".")[0] in JobSpec.model_fields
    return setting if is_field or "." in name else f"hyperparameters.{setting}"
