"""What a search knows beside its trials: numbers, the best, and how far its end has come."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from services.hpo.core.actions import EndedBy, FailedBy
from services.hpo.core.inputs import TrialsOfPause
from services.hpo.core.limits import Limits
from services.hpo.core.ranking import Ranked
from services.hpo.core.trials import Measured


@dataclass(frozen=True, slots=True)
class Numbers:
    """The part of a study that may change while it runs."""

    max_trials: int
    max_parallel_trials: int
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Status:
    """`num_since_best` trials have ended since one had the loss `best_counted`, none with a better.

    `num_points`: how many points the space has, known once the sampler has none left.
    `num_tolerated` trials failed elsewhere, before the study.
    """

    numbers: Numbers
    num_completed: int = 0
    num_failed: int = 0
    num_stopped: int = 0
    num_refused_in_row: int = 0
    best: Ranked | None = None
    best_counted: float | None = None
    num_since_best: int = 0
    num_points: int | None = None
    paused: TrialsOfPause | None = None
    ending: EndedBy | None = None
    failing: FailedBy | None = None
    is_cancelled: bool = False
    is_finished: bool = False
    num_tolerated: int = 0

    @property
    def num_failed_here(self) -> int:
        return self.num_failed - self.num_tolerated

    @property
    def num_trials(self) -> int:
        """How many trials there will be."""
        most = self.numbers.max_trials
        return most if self.num_points is None else min(most, self.num_points)

    @property
    def without_trials(self) -> EndedBy:
        """What ends a study that has no further trials."""
        return "max_trials" if self.num_points is None else "space_exhausted"

    @property
    def is_ending(self) -> bool:
        return bool(self.is_finished or self.is_cancelled or self.ending or self.failing)

    @property
    def state(self) -> Literal["running", "paused", "ending", "finished"]:
        if self.is_finished:
            return "finished"
        return "ending" if self.is_ending else "paused" if self.paused else "running"

    def with_completed(self, best: Ranked | None) -> "Status":
        """After one more trial; `best`: this trial, if it is the best so far."""
        num = self.num_completed + 1
        return replace(self, num_completed=num, num_refused_in_row=0, best=best or self.best)

    def with_failed(self, *, is_refused: bool) -> "Status":
        in_row = self.num_refused_in_row + 1 if is_refused else 0
        return replace(self, num_failed=self.num_failed + 1, num_refused_in_row=in_row)

    def with_stopped(self) -> "Status":
        return replace(self, num_stopped=self.num_stopped + 1)


class Phase(StrEnum):
    """Where a trial that has not ended is.

    STOPPING: asked to stop, not stopped yet. PAUSING: asked to pause by the pruner, and PAUSED: it
    has paused. HOLDING and HELD are the same for a pause of the whole study, or by somebody else.
    """

    RUNNING = "running"
    STOPPING = "stopping"
    PAUSING = "pausing"
    PAUSED = "paused"
    HOLDING = "holding"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Open:
    """A trial that has not ended. `late`: what was measured after it was asked to pause.

    `reason`: why it was asked to stop or pause; of a running trial that somebody else resumed, why
    it had been paused.
    """

    phase: Phase = Phase.RUNNING
    reason: str = ""
    holds_devices: bool = False
    late: tuple[Measured, ...] = field(default=())

    @property
    def is_to_wait(self) -> bool:
        """Somebody else resumed it and it has reached no rung since: a pause is that of before."""
        return self.phase is Phase.RUNNING and bool(self.reason)
