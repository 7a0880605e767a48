"""Small files that only their owner may read, written whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace a file by rename; mode 0600 from its first byte on."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        # On a full disk the space is needed.
        partial.unlink(missing_ok=True)
        raise


def as_texts(content: object) -> dict[str, str]:
    """What a file must say: a text for each name. Raises TypeError."""
    if not isinstance(content, Mapping):
        raise TypeError("not an object")
    for name, value in content.items():
        if not isinstance(value, str):
            raise TypeError(f"{name!r} is not a text")
    return dict(content)
