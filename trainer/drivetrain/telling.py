"""`run.phase`: what a script says that it does between steps; a part of `Run`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from drivetrain.errors import DrivetrainError
from drivetrain.messages import PHASE_PATTERN, PhaseBegun
from drivetrain.reporting import Reporter


class Telling:
    """Only what rank 0 tells is used."""

    _reporter: Reporter
    _rank: int
    _phase: str | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name what the block does while no step is made: `with run.phase("evaluation"):`.

        It is shown, and the run is not stalled while the block prints something now and then.
        """
        if not re.fullmatch(PHASE_PATTERN, name):
            fix = "lower-case letters, digits and underscores, 40 at most, such as 'evaluation'"
            raise DrivetrainError(f"run.phase({name!r:.80}): write {fix}")
        outer = self._phase
        self._begin(name)
        try:
            yield
        finally:
            self._begin(outer)

    def _begin(self, phase: str | None) -> None:
        self._phase = phase
        if self._rank == 0:
            self._reporter.send(PhaseBegun(phase))
