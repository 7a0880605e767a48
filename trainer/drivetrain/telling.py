"""`run.phase`: what a script says of itself besides numbers and media; a part of `Run`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from drivetrain.errors import DrivetrainError
from drivetrain.messages import PHASE_PATTERN, PhaseBegun
from drivetrain.reporting import Reporter


class Telling:
    """Only what rank 0 tells is used."""

    _reporter: Reporter
    _phase: str | None = None

    @property
    def rank(self) -> int:
        raise NotImplementedError

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name what the block does while no step is made: `with run.phase("evaluation"):`.

        It is shown, and the run is not stalled while the block prints something now and then.
        """
        if not re.fullmatch(PHASE_PATTERN, name):
            raise DrivetrainError(
                f"run.phase({name!r:.80}): write a word of at most 40 lower-case letters, digits"
                " and underscores, such as 'evaluation'"
            )
        outer = self._phase
        self._say(name)
        try:
            yield
        finally:
            self._say(outer)

    def _say(self, phase: str | None) -> None:
        self._phase = phase
        if self.rank == 0:
            self._reporter.send(PhaseBegun(phase))
