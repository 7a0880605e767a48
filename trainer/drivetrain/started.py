"""Where this program was started. Scripts in the style of Hydra change the directory afterwards."""

import os
from pathlib import Path

_known: dict[str, Path] = {}


def remember() -> None:
    """To be called before the script runs: by the import of this package."""
    _known.clear()
    try:
        _known["directory"] = Path.cwd()
    except FileNotFoundError:  # it was deleted
        return


def directory() -> Path:
    return _known.get("directory") or Path().absolute()


def relative(path: str) -> str:
    """A path that was given to the program, relative to the directory it was started in."""
    return os.path.relpath(directory() / path, directory())


remember()
