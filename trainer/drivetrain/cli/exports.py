"""`drivetrain checkpoint download` and `checkpoint export`."""

import json
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drivetrain.cli import downloads, session
from drivetrain.cli.checkpoints import WHICH_HELP, checkpoint_of_job
from drivetrain.cli.errors import InvalidInput, NotFound
from drivetrain.cli.exchange import hugging_face
from drivetrain.cli.exchange.writing import whole_directory, whole_file
from drivetrain.cli.files import OverwriteOption, ToOption
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Item, write_line
from drivetrain.cli.session import JobArgument, example, segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

PIECE_BYTES = 4 * 1024 * 1024
WhichArgument = Annotated[str, typer.Argument(metavar="WHICH", help=WHICH_HELP)]


class ExportFormat(StrEnum):
    SAFETENSORS = "safetensors"
    STATE_DICT = "state_dict"


def download(
    job: JobArgument,
    which: WhichArgument = "latest",
    to: ToOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Download a checkpoint as it is stored, into a directory named with its id."""
    with session.connect() as gateway:
        checkpoint_id = checkpoint_of_job(gateway, find_job(gateway, job), which)["checkpoint_id"]
        root = to or Path(checkpoint_id)
        shards = _shards(gateway, checkpoint_id)
        downloads.check_targets(root, [shard["key"] for shard in shards], overwrite)
        for shard in shards:
            _save(gateway, checkpoint_id, shard, root / shard["key"])
    write_line(f"{len(shards)} shards in {root}")


def export(
    job: JobArgument,
    which: WhichArgument = "latest",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="safetensors holds tensors only.")
    ] = ExportFormat.SAFETENSORS,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What run.resume(...) named it: model where there is one."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Where to put it.")
    ] = None,
    hf: Annotated[
        Path | None,
        typer.Option(
            "--hf",
            metavar="DIR",
            help="A folder of Hugging Face's style: weights, config.json, model card, history.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the weights of a checkpoint as a file that any PyTorch program reads."""
    _need_torch()
    if hf is not None and (to is not None or form is not ExportFormat.SAFETENSORS):
        raise InvalidInput(
            "--hf names the folder and its format", fix="leave out --to and --format"
        )
    with session.connect() as gateway, tempfile.TemporaryDirectory() as temporary:
        job_id = find_job(gateway, job)
        checkpoint = checkpoint_of_job(gateway, job_id, which)
        checkpoint_id = checkpoint["checkpoint_id"]
        directory = Path(temporary)
        for shard in _shards(gateway, checkpoint_id):
            if shard["key"] in ("rank-0.json", "rank-0.safetensors"):
                _save(gateway, checkpoint_id, shard, directory / shard["key"])
        chosen, state = _state(directory, name)
        if hf is not None:
            view = gateway.get(f"/v1/jobs/{segment(job_id)}")
            with whole_directory(hf, overwrite) as partial:
                _write(state, chosen, form, partial / hugging_face.WEIGHTS)
                names = hugging_face.write_beside(partial, gateway, view, checkpoint)
            write_line(f"{', '.join([hugging_face.WEIGHTS, *names])} in {hf}")
            return
    suffix = "safetensors" if form is ExportFormat.SAFETENSORS else "pt"
    target = to or Path(f"{chosen}.{suffix}")
    with whole_file(target, overwrite) as partial:
        _write(state, chosen, form, partial)
    write_line(str(target))


def register(app: typer.Typer) -> None:
    """Add these verbs to `drivetrain checkpoint`."""
    app.command(epilog=example("drivetrain checkpoint download digits best"))(download)
    app.command(
        epilog=example("drivetrain checkpoint export digits best --format state_dict --to best.pt")
    )(export)


def _shards(gateway: "Gateway", checkpoint_id: str) -> list[Item]:
    answer = gateway.get(f"/v1/checkpoints/{segment(checkpoint_id)}/shards")
    return downloads.choose([{**shard, "path": shard["key"]} for shard in answer["shards"]], None)


def _save(gateway: "Gateway", checkpoint_id: str, shard: Item, target: Path) -> None:
    path = f"/v1/checkpoints/{segment(checkpoint_id)}/shards/content"
    downloads.save(gateway, path, {"key": shard["key"]}, shard, target)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            "an export needs PyTorch",
            fix="pip install 'drivetrain[torch]', or use: drivetrain checkpoint download",
        ) from error


def _state(directory: Path, name: str | None) -> tuple[str, Any]:
    """The name and the state of what is exported. The files were verified."""
    from drivetrain import tensor_files, tree

    paths = directory / "rank-0.json", directory / "rank-0.safetensors"
    if not all(path.exists() for path in paths):
        raise InvalidInput("the checkpoint was not written by run.resume(...)")
    things = json.loads(paths[0].read_bytes())["things"]
    if name is None:
        name = "model" if "model" in things or len(things) != 1 else next(iter(things))
    if name not in things:
        raise NotFound(f"the checkpoint holds {', '.join(things)}, and no {name}", fix="use --name")
    with paths[1].open("rb") as file:
        tensors = tensor_files.read(iter(lambda: file.read(PIECE_BYTES), b""))
    return name, tree.decode(things[name], tensors)


def _write(state: Any, name: str, form: ExportFormat, target: Path) -> None:
    import torch

    from drivetrain.tensor_files import TensorFile

    if form is ExportFormat.STATE_DICT:
        torch.save(state, target)
        return
    others = [key for key, value in state.items() if not isinstance(value, torch.Tensor)]
    if others:
        shown = ", ".join(map(str, others[:3]))
        fix = "use --format state_dict"
        raise InvalidInput(f"{name} holds more than tensors, such as {shown}", fix=fix)
    with target.open("wb") as file:
        tensors = {str(key): value for key, value in state.items()}
        for piece in TensorFile(tensors, hugging_face.WEIGHTS_METADATA):
            file.write(piece)
