"""A search with asynchronous workers in simulated time: whoever asks, the same conditions.

A worker that becomes free gets a new trial, or goes on with its own one; an epoch takes as long as
the surrogate says. Trials are counted when they are finished at full length, in the order in which
they end; epochs of stopped trials count as spent. A trial begins only where the budget lets all
that run reach their end: one that cannot would burden a search that stops trials, and no other.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.lcbench import FLOATS, PARAMETERS
from services.hpo.core.pruners.base import Base
from services.hpo.core.samplers import SAMPLERS
from services.hpo.core.space import Point, Scalar, Space, make_space
from services.hpo.core.strategies import Pruner, Verdict
from services.hpo.core.trials import EarlierStudy, Measured, Trial, Trials, TrialState

NUM_WORKERS = 8
SPACE = make_space(PARAMETERS)


class Objective(Protocol):
    @property
    def epochs(self) -> int:
        """Of a trial at full length."""

    def curve(self, task: str, point: Mapping[str, Scalar]) -> tuple[FLOATS, FLOATS]:
        """Accuracies and seconds since the start at the end of each epoch."""


class Searcher(Protocol):
    """`rungs`: the epochs after which `goes_on` is asked."""

    rungs: tuple[int, ...]

    def ask(self) -> tuple[object, Mapping[str, Scalar]]:
        """A key of the trial, and its hyperparameters."""

    def goes_on(self, key: object, epoch: int, accuracy: float) -> bool: ...

    def tell(self, key: object, accuracy: float) -> None: ...


class Ours:
    """A sampler and a pruner of the service: those that judge at once, without pauses."""

    def __init__(
        self,
        sampler: str,
        seed: int,
        *,
        space: Space = SPACE,
        pruner: Pruner | None = None,
        earlier: tuple[EarlierStudy, ...] = (),
    ) -> None:
        self._pruner = pruner or Base(())
        self.rungs = self._pruner.steps_of(0)
        self._sampler = SAMPLERS[sampler](space, seed, 10_000)
        self.trials = Trials(space, ("maximize",), seed=seed, earlier=earlier)

    def ask(self) -> tuple[object, Mapping[str, Scalar]]:
        number = len(self.trials)
        proposal = self._sampler.propose(self.trials, number)
        assert proposal is not None
        self.trials.put(Trial(number, proposal.point))
        return number, proposal.point

    def goes_on(self, key: object, epoch: int, accuracy: float) -> bool:
        trial = self._trial(key)
        measured = (*trial.measured, Measured(epoch, accuracy))
        self.trials.put(Trial(trial.number, trial.point, measured=measured))
        judgement = self._pruner.judge(self.trials, trial.number, epoch)
        if judgement.verdict is Verdict.CONTINUE:
            return True
        state = TrialState.STOPPED
        self.trials.put(Trial(trial.number, trial.point, state, measured=measured))
        return False

    def tell(self, key: object, accuracy: float) -> None:
        """As the platform does: a trial whose metric is no number has failed."""
        trial, is_known = self._trial(key), math.isfinite(accuracy)
        state = TrialState.COMPLETED if is_known else TrialState.FAILED
        values = (accuracy,) if is_known else ()
        self.trials.put(Trial(trial.number, trial.point, state, values, measured=trial.measured))

    def study(self) -> EarlierStudy:
        return EarlierStudy(self.trials.units.copy(), self.trials.losses.copy())

    def _trial(self, key: object) -> Trial:
        assert isinstance(key, int)
        return self.trials[key]


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial at full length; `epochs` are those spent by all trials until then."""

    accuracy: float
    epochs: int


@dataclass(frozen=True, slots=True)
class _Running:
    key: object
    point: Point
    accuracies: FLOATS
    seconds: FLOATS


def search(
    surrogate: Objective, task: str, searcher: Searcher, num_epochs: int
) -> tuple[Finished, ...]:
    """The finished trials until so many epochs are spent, in the order in which they ended."""
    whole = surrogate.epochs
    ends = (*searcher.rungs, whole)
    running: list[tuple[float, int, int, _Running]] = []  # end, order, rung, trial
    finished: list[Finished] = []
    # `held`: what is spent once all that run have reached their end.
    count, held, spent, now = 0, 0, 0, 0.0

    def go_on(trial: _Running, rung: int) -> None:
        nonlocal count
        before = trial.seconds[ends[rung - 1] - 1] if rung else 0.0
        end = now + float(trial.seconds[ends[rung] - 1] - before)
        heapq.heappush(running, (end, count, rung, trial))
        count += 1

    while True:
        while len(running) < NUM_WORKERS and held + whole <= num_epochs:
            held += whole
            key, point = searcher.ask()
            go_on(_Running(key, dict(point), *surrogate.curve(task, point)), 0)
        if not running:
            return tuple(finished)
        now, _, rung, trial = heapq.heappop(running)
        spent += ends[rung] - (ends[rung - 1] if rung else 0)
        accuracy = float(trial.accuracies[ends[rung] - 1])
        if ends[rung] == whole:
            searcher.tell(trial.key, accuracy)
            finished.append(Finished(accuracy, spent))
        elif searcher.goes_on(trial.key, ends[rung], accuracy):
            go_on(trial, rung + 1)
        else:
            held -= whole - ends[rung]
