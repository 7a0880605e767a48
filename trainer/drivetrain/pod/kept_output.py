"""What a pod prints, kept in its directory: of very much, the first and the last."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from drivetrain.pod.files import open_to_append

# In all; between them a share of what the disk has free at the start.
MIN_BYTES, MAX_BYTES = 1024**2, 1024**3
SHARE_OF_FREE = 0.05
_logger = logging.getLogger("drivetrain.pod")


class KeptOutput:
    """A file and, of very much output, its end in two more: each at most so large.

    `log.last` has the newest lines and `log.before` those before them.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file = open_to_append(path)

    def write(self, data: bytes) -> None:
        """Raises OSError or ValueError."""
        if self._file.tell() >= self._max_bytes:
            last = self._path.with_suffix(".last")
            with suppress(FileNotFoundError):
                last.replace(self._path.with_suffix(".before"))
            full, self._file = self._file, open_to_append(last)
            full.close()
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


def open_kept_output(path: Path) -> KeptOutput | None:
    """None where it cannot be written."""
    try:
        disk = os.statvfs(path.parent)
        share = int(SHARE_OF_FREE * disk.f_bavail * disk.f_frsize)
        return KeptOutput(path, max(MIN_BYTES, min(MAX_BYTES, share)) // 3)
    except (OSError, ValueError) as error:
        _logger.warning("output is forwarded and not kept in a file: %s", error)
        return None
