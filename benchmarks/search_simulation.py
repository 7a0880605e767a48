"""A search with asynchronous workers in simulated time: whoever asks, the same conditions.

A new trial is asked for when one ends; a trial takes as long as the surrogate says its training
takes. Everything is counted in finished trials, in the order in which they end.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.lcbench import Surrogate
from services.hpo.core.space import Scalar

NUM_WORKERS = 8


class Searcher(Protocol):
    def ask(self) -> tuple[object, Mapping[str, Scalar]]:
        """A key of the trial, and its hyperparameters."""

    def tell(self, key: object, accuracy: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Finished:
    accuracy: float
    seconds: float
    point: Mapping[str, Scalar]


def search(
    surrogate: Surrogate, task: str, searcher: Searcher, num_trials: int
) -> tuple[Finished, ...]:
    """The finished trials, in the order in which they ended; full length each."""
    running: list[tuple[float, int, object, Finished]] = []
    finished: list[Finished] = []
    num_asked, now = 0, 0.0
    while len(finished) < num_trials:
        while len(running) < NUM_WORKERS and num_asked < num_trials:
            key, point = searcher.ask()
            accuracies, seconds = surrogate.curve(task, point)
            trial = Finished(float(accuracies[-1]), float(seconds[-1]), point)
            heapq.heappush(running, (now + trial.seconds, num_asked, key, trial))
            num_asked += 1
        now, _, key, trial = heapq.heappop(running)
        searcher.tell(key, trial.accuracy)
        finished.append(trial)
    return tuple(finished)


MakeSearcher = Callable[[str, int], Searcher]
