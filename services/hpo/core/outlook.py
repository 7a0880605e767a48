"""What a search would do next and why, and its rungs with the value that decides at each."""

from dataclasses import dataclass
from statistics import median
from typing import Literal

from services.hpo.core.search import Search
from services.hpo.core.space import Point
from services.hpo.core.strategies import Drop, Fork, Promote
from services.hpo.core.trials import Rung, TrialState


@dataclass(frozen=True, slots=True)
class Next:
    """`number` is the trial it is about; a proposed or forked one does not exist yet."""

    kind: Literal["propose", "promote", "fork", "drop", "wait", "end"]
    why: str
    number: int | None = None
    parent: int | None = None
    hyperparameters: Point | None = None


@dataclass(frozen=True, slots=True)
class RungNow:
    """Raw values. `threshold`: what a trial measured now would be compared with."""

    step: int
    group: int
    num_measured: int
    num_paused: int
    best: float | None
    median: float | None
    threshold: float | None


def what_next(search: Search) -> Next:
    """Asked with free places: what the next one would be used for."""
    status, number = search.status, len(search.trials)
    if status.is_finished:
        return Next("end", "the study has ended")
    if status.is_ending:
        return Next("end", f"the study ends when its {len(search.opened)} open trials have ended")
    if status.paused is not None:
        return Next("wait", "the study is paused")
    match search.pruner.next(search.trials):
        case Promote(number=paused, why=why):
            return Next("promote", why, paused)
        case Fork(parent=parent, point=point, why=why):
            return Next("fork", why, number, parent, point)
        case Drop(number=paused, why=why):
            return Next("drop", why, paused)
    if number >= status.num_trials:
        return Next("wait", "every trial was started")
    if not search.pruner.may_propose(search.trials):
        return Next("wait", "the running trials must reach their rungs first")
    proposal = search.sampler.propose(search.trials, number)
    if proposal is None:
        return Next("wait", "the space has no further points")
    return Next("propose", proposal.why, number, hyperparameters=proposal.point)


def num_waiting(search: Search) -> int:
    """Trials whose jobs wait for devices."""
    return search.opened.num_waiting


def num_paused(search: Search) -> int:
    return len(search.trials.in_state(TrialState.PAUSED))


def rungs(search: Search) -> tuple[RungNow, ...]:
    """Every rung at which a trial was measured, by step and group."""
    found = sorted(search.trials.rungs.items(), key=lambda item: (item[0][1], item[0][0]))
    return tuple(_rung(search, group, step, rung) for (group, step), rung in found)


def _rung(search: Search, group: int, step: int, rung: Rung) -> RungNow:
    losses = [loss for loss, _ in rung.ranked]
    sign = 1.0 if search.plan.goals[0] == "minimize" else -1.0
    threshold = None
    if rung.ranked:
        threshold = search.pruner.judge(search.trials, rung.ranked[-1][1], step).threshold
    return RungNow(
        step=step,
        group=group,
        num_measured=len(rung.values),
        num_paused=len(rung.paused),
        best=sign * losses[0] if losses else None,
        median=sign * median(losses) if losses else None,
        threshold=threshold,
    )
