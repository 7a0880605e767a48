"""Whether a pod's ranks train together, or each one the whole model by itself.

The platform starts the program once per device. Ranks that train together use this package, which
connects to the shim, or torch.distributed, whose rank 0 listens on MASTER_PORT. Where neither is
seen, the log says so once.
"""

from collections.abc import Callable
from pathlib import Path

from drivetrain_schemas import launching
from drivetrain_schemas.pods import PodSpec

# By then a program has imported its libraries and met its other ranks.
SECONDS = 60.0
_LISTENING = "0A"


class Alone:
    """Watches the pod that has rank 0."""

    def __init__(self, spec: PodSpec, now: float, listens: Callable[[int], bool]) -> None:
        self._spec = spec
        self._until = now + SECONDS
        self._listens = listens
        has_ranks_of_its_own = launching.find(spec.job.command) is not None
        self._is_open = spec.world_size > 1 and spec.first_rank == 0 and not has_ranks_of_its_own

    def is_together(self) -> None:
        """A rank uses the package."""
        self._is_open = False

    def look(self, now: float, have_succeeded: bool = False) -> str:
        """What is to be said, once; mostly nothing. To be called several times a second."""
        if not self._is_open:
            return ""
        if self._listens(self._spec.master_port):
            self._is_open = False
            return ""
        if now < self._until and not have_succeeded:
            return ""
        self._is_open = False
        return (
            f"this program runs {self._spec.world_size} times, once per device, and its "
            "ranks do not seem to work together, so each trains the whole model by itself. Use "
            "run.parallel(model) of drivetrain or torch.distributed.init_process_group() (its "
            "variables are set), or ask for one device. A launcher such as torchrun is to be the "
            "job's command itself, not in a script that it runs"
        )


def listens(port: int) -> bool:
    """Whether a process of this machine listens on the port."""
    return any(_holds(path, f":{port:04X}") for path in ("/proc/net/tcp", "/proc/net/tcp6"))


def _holds(path: str, port: str) -> bool:
    try:
        lines = Path(path).read_text().splitlines()[1:]
    except OSError:
        return False
    return any(
        address.endswith(port) and state == _LISTENING
        for _, address, _, state, *_ in map(str.split, lines)
    )
