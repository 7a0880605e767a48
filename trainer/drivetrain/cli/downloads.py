"""Downloading what a job has stored: into a directory, verified, and never outside of it.

A file appears whole or not at all. One that is there already is replaced only if that was asked
for. Links are made last, and only to places inside, so that nothing is written through one.
"""

import hashlib
import io
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from drivetrain.cli.errors import InvalidInput, NoAnswer, NotFound
from drivetrain.cli.output import Item
from drivetrain_schemas.job_files import MAX_PACKED_FILE_BYTES, is_path, stays_inside

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway, Query

MAX_BATCH_FILES = 100
MAX_BATCH_CHARACTERS = 4000  # of their paths, as they are in the address of one request
_OVERWRITE_FIX = "write --overwrite, or choose another directory with --to"


def choose(files: Sequence[Item], path: str | None) -> list[Item]:
    """The file with this path, or those below it; all without one. Raises NotFound."""
    for file in files:
        if not is_path(file["path"]):
            raise InvalidInput(f"the platform lists an invalid path: {file['path']!r:.100}")
    if path is None:
        return list(files)
    wanted = path.strip("/")
    found = [one for one in files if one["path"] == wanted or one["path"].startswith(f"{wanted}/")]
    if not found:
        raise NotFound(f"the job has no file {path!r:.100}", fix="see: drivetrain job files JOB")
    return found


def check_targets(root: Path, names: Iterable[str], overwrite: bool) -> None:
    """Nothing is in the way, and nothing leads out of `root`. Raises InvalidInput."""
    for name in names:
        target = root / name
        for parent in [*target.parents][: len(Path(name).parts) - 1]:
            if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
                raise InvalidInput(f"{parent} is not a directory", fix=_OVERWRITE_FIX)
        if _is_directory(target):
            raise InvalidInput(f"{target} is a directory", fix="choose another place with --to")
        if os.path.lexists(target) and not overwrite:
            raise InvalidInput(f"{target} exists", fix=_OVERWRITE_FIX)


def save_files(
    gateway: "Gateway", path: str, query: "Query", files: Sequence[Item], root: Path
) -> None:
    """Download these files of a job below `root`, after `check_targets`."""
    for batch in _batches([file for file in files if file.get("target") is None]):
        if len(batch) == 1:
            whole = {**query, "path": batch[0]["path"]}
            save(gateway, path, whole, batch[0], root / batch[0]["path"])
        else:
            names = [file["path"] for file in batch]
            contents = io.BytesIO(b"".join(gateway.download(path, {**query, "path": names})))
            for file in batch:
                _write([contents.read(file["size_bytes"])], file, root / file["path"])
        for file in batch:
            target = root / file["path"]
            target.chmod(int(file["mode"], 8) | 0o200)
            if file.get("modified_at"):
                at = datetime.fromisoformat(file["modified_at"]).timestamp()
                os.utime(target, (at, at))
    _make_links(root, [file for file in files if file.get("target") is not None])


def _batches(files: Sequence[Item]) -> Iterator[list[Item]]:
    """Small files share objects, so they are asked for together; each larger one by itself."""
    batch: list[Item] = []
    length = 0
    for file in files:
        if file["size_bytes"] > MAX_PACKED_FILE_BYTES:
            yield [file]
            continue
        own = len(quote(file["path"], safe=""))
        length += own
        if batch and (len(batch) == MAX_BATCH_FILES or length > MAX_BATCH_CHARACTERS):
            yield batch
            batch, length = [], own
        batch.append(file)
    if batch:
        yield batch


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _make_links(root: Path, links: Sequence[Item]) -> None:
    """No link is made through another one, and none is left that leads out by way of others."""
    made = []
    for link in links:
        target = root / link["path"]
        parents = [*target.parents][: link["path"].count("/")]
        is_hindered = any(parent.is_symlink() for parent in parents) or _is_directory(target)
        if is_hindered or not stays_inside(link["path"], link["target"]):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(link["target"])
        made.append(target)
    inside = Path(os.path.realpath(root))
    for target in made:
        if not Path(os.path.realpath(target)).is_relative_to(inside):
            target.unlink()


def save(gateway: "Gateway", path: str, query: "Query", item: Item, target: Path) -> None:
    """Download one object whose size and SHA-256 `item` names. Raises CliError, OSError."""
    _write(gateway.download(path, query), item, target)


def _write(pieces: Iterable[bytes], item: Item, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        digest = hashlib.sha256()
        with partial.open("xb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != item["sha256"]:
            raise NoAnswer(f"{target.name} arrived damaged", fix="download it again")
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
