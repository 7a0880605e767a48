"""`drivetrain job files` and `job download`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.cli import amounts, downloads, session
from drivetrain.cli.checkpoints import WHICH_HELP, checkpoint_of_job
from drivetrain.cli.names import find_job
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    field_column,
    write_line,
    write_list,
    write_note,
    write_value,
)
from drivetrain.cli.session import JobArgument, OutputOption, example, segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway


def _shown(file: Item) -> str:
    target = file.get("target")
    return str(file["path"]) if target is None else f"{file['path']} -> {target}"


FILE_COLUMNS = (
    Column("PATH", _shown),
    Column("SIZE", lambda one: amounts.size(one.get("size_bytes")), is_number=True),
    field_column("MODE", "mode"),
    Column("MODIFIED", lambda one: amounts.moment(one.get("modified_at"))),
)
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="WHICH", help=f"As of a checkpoint. {WHICH_HELP}"),
]
AttemptOption = Annotated[
    int | None,
    typer.Option("--attempt", min=1, metavar="N", help="The last of this attempt, while kept."),
]
ToOption = Annotated[
    Path | None,
    typer.Option("--to", metavar="PLACE", help="A directory; of one file also x.csv for a.csv."),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that are there already.")
]


def files(
    job: JobArgument,
    checkpoint: CheckpointOption = None,
    attempt: AttemptOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the files that the program wrote: as of its newest save, an attempt or a checkpoint."""
    with session.connect() as gateway:
        listed = _listed(gateway, find_job(gateway, job), checkpoint, attempt)
    if output is not Format.TABLE:
        write_value(listed, output)
        return
    write_list(listed["files"], FILE_COLUMNS, output, "no files saved yet")
    _note_left_out(listed)


def download(
    job: JobArgument,
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="A file or a directory; all without it.")
    ] = None,
    checkpoint: CheckpointOption = None,
    attempt: AttemptOption = None,
    to: ToOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Download the job's files: one here, several into a directory named with its id."""
    with session.connect() as gateway:
        job_id = find_job(gateway, job)
        listed = _listed(gateway, job_id, checkpoint, attempt)
        chosen = downloads.choose(listed["files"], path)
        query = {"checkpoint": listed["checkpoint_id"], "attempt": attempt}
        url = f"/v1/jobs/{segment(job_id)}/files/content"
        if path is not None and len(chosen) == 1 and chosen[0].get("target") is None:
            root = to or Path()
            name = chosen[0]["path"].rpartition("/")[2]
            if to is not None and to.suffix and to.suffix == Path(name).suffix and not to.is_dir():
                root, name = to.parent, to.name
            downloads.check_targets(root, [name], overwrite)
            target = root / name
            downloads.save(gateway, url, {**query, "path": chosen[0]["path"]}, chosen[0], target)
            write_line(str(target))
        else:
            root = to or Path(job_id)
            downloads.check_targets(root, [one["path"] for one in chosen], overwrite)
            downloads.save_files(gateway, url, query, chosen, root)
            write_line(f"{len(chosen)} files in {root}")
    _note_left_out(listed)


def register(app: typer.Typer) -> None:
    """Add these verbs to `drivetrain job`."""
    app.command(epilog=example("drivetrain job files digits --checkpoint best"))(files)
    app.command(epilog=example("drivetrain job download digits outputs/model.pt"))(download)


def _listed(gateway: "Gateway", job_id: str, checkpoint: str | None, attempt: int | None) -> Item:
    checkpoint_id = None
    if checkpoint is not None:
        checkpoint_id = checkpoint_of_job(gateway, job_id, checkpoint)["checkpoint_id"]
    query = {"checkpoint": checkpoint_id, "attempt": attempt}
    listed: Item = gateway.get(f"/v1/jobs/{segment(job_id)}/files", query)
    return listed


def _note_left_out(listed: Item) -> None:
    if listed["num_left_out"]:
        examples = "".join(f"\n  {one}" for one in listed["left_out"])
        write_note(f"{listed['num_left_out']} files were not saved:{examples}")
