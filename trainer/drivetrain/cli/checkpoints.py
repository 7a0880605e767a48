"""`drivetrain checkpoint`: list, show, pin."""

from typing import Annotated

import typer

from drivetrain.cli import amounts, session
from drivetrain.cli.errors import NotFound
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    field_column,
    text_of,
    write_line,
    write_list,
    write_record,
    write_value,
)
from drivetrain.cli.session import UNCONFIRMED, JobArgument, OutputOption, segment

app = session.make_group("List, show and pin checkpoints.")

CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="A checkpoint's id (ckpt_...).")
]

CHECKPOINT_COLUMNS = (
    field_column("CHECKPOINT", "checkpoint_id"),
    field_column("STEP", "step", is_number=True),
    field_column("ATTEMPT", "attempt", is_number=True),
    field_column("STATE", "state"),
    Column("SIZE", lambda one: amounts.size(one.get("size_bytes")), is_number=True),
    Column("MARKS", lambda one: text_of(" ".join(_marks(one)))),
    Column("COMMITTED", lambda one: amounts.moment(one.get("committed_at"))),
)


@app.command(name="list")
def list_checkpoints(job_id: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """List a job's checkpoints, newest first."""
    with session.connect() as gateway:
        answer = gateway.get(f"/v1/jobs/{segment(job_id)}/checkpoints")
    write_list(answer["checkpoints"], CHECKPOINT_COLUMNS, output, "no checkpoints yet")


@app.command()
def show(
    job_id: JobArgument,
    which: Annotated[
        str,
        typer.Argument(metavar="[WHICH]", help="latest, best, a step, or a checkpoint's id."),
    ] = "latest",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one checkpoint of a job: the latest by default."""
    with session.connect() as gateway:
        answer = gateway.get(f"/v1/jobs/{segment(job_id)}/checkpoints")
    one = next((item for item in answer["checkpoints"] if _is(item, which)), None)
    if one is None:
        fix = f"see: drivetrain checkpoint list {job_id}"
        raise NotFound(f"{job_id} has no checkpoint {which!r:.80}", fix=fix)
    values = ", ".join(f"{name} {value:.6g}" for name, value in sorted(one["metrics"].items()))
    rows = [
        ("checkpoint", one["checkpoint_id"]),
        ("job", one["job_id"]),
        ("step", f"{one['step']} of attempt {one['attempt']}"),
        ("state", " ".join([one["state"], *_marks(one)])),
        ("size", f"{amounts.size(one['size_bytes'])} in {text_of(one['num_shards'])} shards"),
        ("metrics", text_of(values)),
        ("manifest", text_of(one["manifest_key"])),
        ("committed", amounts.moment(one["committed_at"])),
    ]
    if one.get("detail"):
        rows.append(("detail", one["detail"]))
    write_record(one, output, rows)


@app.command()
def pin(checkpoint_id: CheckpointArgument, output: OutputOption = Format.TABLE) -> None:
    """Pin a checkpoint, so that it is kept regardless of the job's policy."""
    with session.connect() as gateway:
        answer = gateway.post(f"/v1/checkpoints/{segment(checkpoint_id)}/pin")
    if output is Format.TABLE:
        is_kept = answer["is_confirmed"]
        write_line(f"{checkpoint_id} is pinned" if is_kept else f"{checkpoint_id}: {UNCONFIRMED}")
    else:
        write_value(answer, output)


def _is(checkpoint: Item, which: str) -> bool:
    if which in ("latest", "best"):
        return bool(checkpoint[f"is_{which}"])
    return which in (checkpoint["checkpoint_id"], str(checkpoint["step"]))


def _marks(checkpoint: Item) -> list[str]:
    marks = [name for name in ("latest", "best", "pinned") if checkpoint.get(f"is_{name}")]
    if checkpoint.get("restored_by_attempt"):
        marks.append(f"restored-by-{checkpoint['restored_by_attempt']}")
    return marks
