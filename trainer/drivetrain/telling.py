"""`run.phase` and `run.alert`: what a script says of itself between steps; a part of `Run`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from drivetrain.errors import DrivetrainError
from drivetrain.messages import PHASE_PATTERN, PhaseBegun
from drivetrain.reporting import Reporter
from drivetrain_schemas.reports import alert_detail


class Telling:
    """Of phases, only what rank 0 tells is used."""

    _reporter: Reporter
    _rank: int
    _phase: str | None = None

    def alert(self, title: str, text: str = "") -> None:
        """Ask people for attention, from any rank: an alert of the job. Never blocks.

        At most 100 characters of the title and 500 of the text are told. The same alert is raised
        once in a run, and a pod raises ten; further ones are counted, and stay in the log.
        """
        self._reporter.alert(alert_detail(str(title), str(text)))

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
