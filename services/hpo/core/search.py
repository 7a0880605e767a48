"""What a study does next: its progress and the ends of its trials in, actions out.

`decide` settles the trials that ended, proposes as many new ones as may run in parallel, and
finishes the study when none is left. A study whose jobs are refused again and again proposes no
more and fails; one that its owner cancelled proposes no more and ends when none of its trials runs.
It keeps three invariants: a number is proposed once and in order, never more than
`max_parallel_trials` run, and every proposed trial is settled once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.hpo.core.ranking import Goal, Ranked, is_better
from services.hpo.core.samplers import SAMPLERS, num_points
from services.hpo.core.space import Point, Space
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Search:
    """The request; immutable."""

    space: Space
    sampler: str
    seed: int
    num_trials: int
    max_parallel_trials: int
    goal: Goal


# After this many refusals in a row the next trial would be refused too: the spec is the cause.
MAX_REFUSED_IN_ROW = 10


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a study; stored with it."""

    num_proposed: int = 0
    num_completed: int = 0
    num_failed: int = 0
    num_refused_in_row: int = 0
    best: Ranked | None = None
    is_cancelled: bool = False

    @property
    def num_running(self) -> int:
        return self.num_proposed - self.num_completed - self.num_failed

    @property
    def is_given_up(self) -> bool:
        return self.num_refused_in_row >= MAX_REFUSED_IN_ROW


@dataclass(frozen=True, slots=True)
class Ended:
    """A running trial ended: with a value, or without one and a reason.

    `is_refused`: the scheduler did not accept its job.
    """

    number: int
    value: float | None
    detail: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class CompleteTrial:
    number: int
    value: float
    is_best: bool


@dataclass(frozen=True, slots=True)
class FailTrial:
    number: int
    detail: str


@dataclass(frozen=True, slots=True)
class ProposeTrial:
    number: int
    hyperparameters: Point


@dataclass(frozen=True, slots=True)
class FinishStudy:
    num_completed: int
    num_failed: int
    best: Ranked | None


@dataclass(frozen=True, slots=True)
class FailStudy:
    """The jobs of too many trials in a row were refused; `detail` is why the last one was."""

    num_completed: int
    num_failed: int
    detail: str


@dataclass(frozen=True, slots=True)
class CancelStudy:
    """The owner cancelled the study, and the last running trial has ended."""

    num_completed: int
    num_failed: int
    best: Ranked | None


Action = CompleteTrial | FailTrial | ProposeTrial | FinishStudy | FailStudy | CancelStudy


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...]
    progress: Progress


def num_trials(sampler: str, space: Space, max_trials: int) -> int:
    """The number of trials: a grid may have fewer points than the trials allowed."""
    return num_points(sampler, space, max_trials)


def decide(search: Search, progress: Progress, ended: Sequence[Ended]) -> Decision:
    """The next actions. `ended` are running trials, each once; deciding again yields nothing.

    A study that has ended is not decided about again.
    """
    actions: list[Action] = []
    for trial in sorted(ended, key=lambda trial: trial.number):
        action, progress = _settle(search, progress, trial)
        actions.append(action)
    for number in range(progress.num_proposed, _proposed_after(search, progress)):
        sampler = SAMPLERS[search.sampler](search.space, search.seed, search.num_trials)
        proposal = sampler.propose(Trials(search.space, (search.goal,)), number)
        assert proposal is not None, f"trial {number} lies outside the grid"
        actions.append(ProposeTrial(number, proposal.point))
        progress = replace(progress, num_proposed=number + 1)
    if progress.is_cancelled and not progress.num_running:
        actions.append(CancelStudy(progress.num_completed, progress.num_failed, progress.best))
    elif ended and progress.is_given_up and not progress.num_running:
        detail = max(ended, key=lambda trial: trial.number).detail
        actions.append(FailStudy(progress.num_completed, progress.num_failed, detail))
    elif ended and progress.num_completed + progress.num_failed == search.num_trials:
        actions.append(FinishStudy(progress.num_completed, progress.num_failed, progress.best))
    return Decision(tuple(actions), progress)


def _settle(search: Search, progress: Progress, trial: Ended) -> tuple[Action, Progress]:
    assert progress.num_running > 0, f"trial {trial.number} ended and none runs"
    if trial.value is None:
        in_row = progress.num_refused_in_row + 1 if trial.is_refused else 0
        failed = replace(progress, num_failed=progress.num_failed + 1, num_refused_in_row=in_row)
        return FailTrial(trial.number, trial.detail), failed
    ranked = Ranked(trial.number, trial.value)
    better = is_better(search.goal, ranked, progress.best)
    completed = replace(
        progress,
        num_completed=progress.num_completed + 1,
        num_refused_in_row=0,
        best=ranked if better else progress.best,
    )
    return CompleteTrial(trial.number, trial.value, better), completed


def _proposed_after(search: Search, progress: Progress) -> int:
    if progress.is_given_up or progress.is_cancelled:
        return progress.num_proposed
    free = search.max_parallel_trials - progress.num_running
    return min(search.num_trials, progress.num_proposed + max(free, 0))
