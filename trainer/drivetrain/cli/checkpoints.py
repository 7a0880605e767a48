"""`drivetrain checkpoint`: list, show, pin; `exports` adds download and export."""

from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.cli import amounts, completing, session
from drivetrain.cli.accepted import write_accepted
from drivetrain.cli.errors import InvalidInput, NotFound
from drivetrain.cli.names import find_checkpoint, find_job
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    field_column,
    text_of,
    write_list,
    write_record,
)
from drivetrain.cli.session import JobArgument, OutputOption, example, segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

app = session.make_group("List, show, pin, download and export checkpoints.")

CheckpointArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A checkpoint: its id or the beginning of it; or a job.",
        autocompletion=completing.jobs,
    ),
]
WHICH_HELP = "Of a job: latest, best, a step, or the beginning of a checkpoint's id."

NUM_METRICS = 10

CHECKPOINT_COLUMNS = (
    field_column("CHECKPOINT", "checkpoint_id"),
    field_column("STEP", "step", is_number=True),
    field_column("ATTEMPT", "attempt", is_number=True),
    field_column("STATE", "state"),
    Column("SIZE", lambda one: amounts.size(one.get("size_bytes")), is_number=True),
    Column("MARKS", lambda one: text_of(" ".join(_marks(one)))),
    Column("COMMITTED", lambda one: amounts.moment(one.get("committed_at"))),
)


@app.command(name="list", epilog=example("drivetrain checkpoint list digits"))
def list_checkpoints(job: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """List a job's checkpoints, newest first."""
    with session.connect() as gateway:
        answer = gateway.get(f"/v1/jobs/{segment(find_job(gateway, job))}/checkpoints")
    write_list(answer["checkpoints"], CHECKPOINT_COLUMNS, output, "no checkpoints yet")


@app.command(epilog=example("drivetrain checkpoint show digits best"))
def show(
    job: JobArgument,
    which: Annotated[str, typer.Argument(metavar="WHICH", help=WHICH_HELP)] = "latest",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one checkpoint of a job: the latest by default."""
    with session.connect() as gateway:
        one = checkpoint_of_job(gateway, find_job(gateway, job), which)
    metrics = sorted(one["metrics"].items())
    values = ", ".join(f"{name} {amounts.number(value)}" for name, value in metrics[:NUM_METRICS])
    if len(metrics) > NUM_METRICS:
        values += f", and {len(metrics) - NUM_METRICS} more: --output json has all"
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


@app.command(epilog=example("drivetrain checkpoint pin digits best"))
def pin(
    checkpoint: CheckpointArgument,
    which: Annotated[str | None, typer.Argument(metavar="WHICH", help=WHICH_HELP)] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Pin a checkpoint, so that it is kept regardless of the job's policy."""
    with session.connect() as gateway:
        if which is None:
            checkpoint_id = find_checkpoint(gateway, checkpoint)
        else:
            found = checkpoint_of_job(gateway, find_job(gateway, checkpoint), which)
            checkpoint_id = found["checkpoint_id"]
        answer = gateway.post(f"/v1/checkpoints/{segment(checkpoint_id)}/pin")
    write_accepted(answer, checkpoint_id, "is pinned", output)


def checkpoint_of_job(gateway: "Gateway", job_id: str, which: str) -> Item:
    """The job's checkpoint that `which` means. Raises NotFound or InvalidInput."""
    answer = gateway.get(f"/v1/jobs/{segment(job_id)}/checkpoints")
    found: list[Item] = [item for item in answer["checkpoints"] if _is(item, which)]
    if not found:
        fix = f"see: drivetrain checkpoint list {job_id}"
        raise NotFound(f"{job_id} has no checkpoint {which!r:.80}", fix=fix)
    ids = {item["checkpoint_id"] for item in found}
    # Two attempts may have saved the same step: the newest comes first.
    if len(ids) > 1 and which != str(found[0]["step"]):
        choices = ", ".join(sorted(ids))
        raise InvalidInput(f"{which!r:.80} may mean {choices:.300}", fix="write more of the id")
    return found[0]


def _is(checkpoint: Item, which: str) -> bool:
    if which in ("latest", "best"):
        return bool(checkpoint[f"is_{which}"])
    if which == str(checkpoint["step"]):
        return True
    body = which.removeprefix("ckpt_")
    return bool(body) and checkpoint["checkpoint_id"].startswith(f"ckpt_{body}")


def _marks(checkpoint: Item) -> list[str]:
    marks = [name for name in ("latest", "best", "pinned") if checkpoint.get(f"is_{name}")]
    if checkpoint.get("restored_by_attempt"):
        marks.append(f"restored-by-{checkpoint['restored_by_attempt']}")
    return marks
