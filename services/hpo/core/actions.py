"""What a search decides; the shell carries it out in the same transaction."""

from dataclasses import dataclass
from typing import Literal

from services.hpo.core.ranking import Ranked
from services.hpo.core.space import Point
from services.hpo.core.strategies import Judgement

EndedBy = Literal[
    "max_trials",
    "space_exhausted",
    "device_hours",
    "cost",
    "hours",
    "no_improvement",
    "stopped",
]
FailedBy = Literal["trials_refused", "failed_trials", "all_trials_failed"]


@dataclass(frozen=True, slots=True)
class _OfTrial:
    number: int


@dataclass(frozen=True, slots=True)
class _Because(_OfTrial):
    reason: str


@dataclass(frozen=True, slots=True)
class ProposeTrial:
    """Start this trial; of a finished one from elsewhere (`is_imported`) nothing is started."""

    number: int
    point: Point
    why: str
    rungs: tuple[int, ...] = ()
    parent: int | None = None
    request_id: str | None = None
    is_imported: bool = False


@dataclass(frozen=True, slots=True)
class JudgeTrial:
    number: int
    step: int
    value: float | None
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class StopTrial(_Because):
    """Ask the scheduler to end the trial's job early."""


@dataclass(frozen=True, slots=True)
class DropTrial(_Because):
    """A paused trial ends for good; its job, which holds no devices, is stopped."""


@dataclass(frozen=True, slots=True)
class PauseTrial(_Because):
    """Ask the scheduler to pause the trial's job."""


@dataclass(frozen=True, slots=True)
class PromoteTrial:
    """A paused trial goes on; `is_resumed`: its job was resumed by somebody else."""

    number: int
    why: str
    is_resumed: bool = False


@dataclass(frozen=True, slots=True)
class ResumeJob(_OfTrial):
    """The job of a trial that was paused together with its study goes on."""


@dataclass(frozen=True, slots=True)
class CancelTrial(_OfTrial):
    """Ask the scheduler to cancel the trial's job."""


@dataclass(frozen=True, slots=True)
class CompleteTrial:
    number: int
    values: tuple[float, ...]
    is_best: bool
    is_safe: bool = True
    safety: float | None = None


@dataclass(frozen=True, slots=True)
class FailTrial:
    number: int
    detail: str


@dataclass(frozen=True, slots=True)
class SettleStopped(_Because):
    """The trial has ended early; `is_asked`: as the search had asked."""

    is_asked: bool


@dataclass(frozen=True, slots=True)
class SettlePaused(_Because):
    """The trial waits without devices."""


@dataclass(frozen=True, slots=True)
class EndEarly:
    """Nothing more is proposed, and the running trials are being stopped."""

    ended_by: EndedBy
    reason: str


@dataclass(frozen=True, slots=True)
class FinishStudy:
    ended_by: EndedBy
    best: Ranked | None
    pareto: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FailStudy:
    reason: FailedBy


@dataclass(frozen=True, slots=True)
class FinishCancel:
    """The study was cancelled, and the last running trial has ended."""

    best: Ranked | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request was not carried out."""

    reason: Literal["too_many_running", "no_further_point"]
    detail: str


Action = (
    ProposeTrial
    | JudgeTrial
    | StopTrial
    | DropTrial
    | PauseTrial
    | PromoteTrial
    | ResumeJob
    | CancelTrial
    | CompleteTrial
    | FailTrial
    | SettleStopped
    | SettlePaused
    | EndEarly
    | FinishStudy
    | FailStudy
    | FinishCancel
    | Refuse
)
