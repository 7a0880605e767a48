"""Files and directories that appear whole or not at all."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drivetrain.cli.errors import InvalidInput

OVERWRITE_FIX = "write --overwrite, or choose another place"


@contextmanager
def whole_file(target: Path, overwrite: bool) -> Iterator[Path]:
    """A file to write that takes its name at the end. Raises InvalidInput."""
    if target.is_dir():
        raise InvalidInput(f"{target} is a directory", fix="give the name of a file")
    with _in_place_of(target, overwrite) as partial:
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def whole_directory(target: Path, overwrite: bool) -> Iterator[Path]:
    """A directory to fill that takes its name at the end. Raises InvalidInput."""
    with _in_place_of(target, overwrite) as partial:
        partial.mkdir()
        try:
            yield partial
            if target.is_symlink() or target.is_file():
                target.unlink()
            elif target.exists():
                shutil.rmtree(target)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _in_place_of(target: Path, overwrite: bool) -> Iterator[Path]:
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise InvalidInput(f"{target} exists", fix=OVERWRITE_FIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target.with_name(f".{secrets.token_hex(8)}.partial")
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror or error}"
        raise InvalidInput(message, fix="free some space, or choose another place") from error
