"""Where a stop notice of the platform is found: `stop.json`, or the annotation of a container.

Kubernetes writes the annotation into a file, which is there and empty before. SIGTERM without a
notice, as when others delete the pod, stops it too, after the default time.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from drivetrain.pod.files import read_bounded
from drivetrain_schemas.pods import StopNotice

NOTICE = "stop.json"
# What the shim has taken as its notice, wherever it was found: for the ranks.
TAKEN = "notice.json"
DEFAULT_NOTICE = StopNotice(reason="shutdown", deadline_seconds=10.0)
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Notices:
    """Of the pod in `directory`."""

    directory: Path
    annotation: Path | None = None
    default: StopNotice = DEFAULT_NOTICE

    def is_given(self) -> bool:
        return os.path.lexists(self.directory / NOTICE) or self._size_of_annotation() > 0

    def read(self) -> StopNotice:
        """The current notice; the default one where there is no valid file."""
        try:
            content = read_bounded(self.directory / NOTICE, _MAX_BYTES)
            if content is None and self.annotation is not None:
                # A link of the kubelet's; no program of the pod can write there.
                with self.annotation.open("rb") as file:
                    content = file.read(_MAX_BYTES)
            return StopNotice.model_validate_json(content or b"")
        except (OSError, ValueError):
            return self.default

    def _size_of_annotation(self) -> int:
        try:
            return 0 if self.annotation is None else self.annotation.stat().st_size
        except OSError:
            return 0
