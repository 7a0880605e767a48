"""What a search asks of its strategies: a sampler proposes points, a pruner spends on the best.

A strategy depends only on the study's spec, its seed, the trial's number and the stored trials:
one that is built again from these decides the same as one that lived all along. Random bits are
counter-based, so there is no generator whose state could be lost.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from services.hpo.core.space import Point
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Proposal:
    """A point to try; `why` is one plain sentence for people."""

    point: Point
    why: str


class Sampler(Protocol):
    def propose(self, trials: Trials, number: int) -> Proposal | None:
        """The point of this trial; None when there are no further points, as on a grid."""


class Verdict(StrEnum):
    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a trial at a rung. `threshold` is raw: in the metric's own direction.

    `rank` counts from 1 among the `num_ranked` trials measured at the rung.
    """

    verdict: Verdict
    reason: str
    threshold: float | None = None
    rank: int | None = None
    num_ranked: int | None = None


@dataclass(frozen=True, slots=True)
class Promote:
    """Resume this paused trial."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Fork:
    """Start a new trial at this point from the parent's checkpoint."""

    parent: int
    point: Point
    why: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Stop this paused trial for good."""

    number: int
    why: str


class Pruner(Protocol):
    """Keeps no state: every decision follows from the trials it is given."""

    def group_of(self, number: int) -> int:
        """Trials are ranked within their group, such as a bracket of Hyperband."""

    def steps_of(self, number: int) -> tuple[int, ...]:
        """The rungs of this trial, ascending, below the job's max_steps."""

    def judge(self, trials: Trials, number: int, step: int) -> Judgement:
        """What becomes of the trial, now that its value at this rung is among `trials`."""

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        """What a free slot is better used for than a new point."""

    def may_propose(self, trials: Trials) -> bool:
        """False while a synchronous rung must fill first."""
