"""A study that is played through before it starts, on learning curves that are made up.

The pruner of the study decides; trials take one unit of time per step. Curves differ in what a
pruner's spending depends on: whether later trials are better or worse than earlier ones, and how
much the first steps of a trial say about its end.
"""

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from services.hpo.core.space import make_space
from services.hpo.core.strategies import Drop, Fork, Promote, Pruner, Verdict
from services.hpo.core.trials import Measured, Trial, Trials, TrialState

# Points play no part.
NO_SPACE = make_space({})
# What a trial logs at a step, as something to minimize.
Curve = Callable[[int, int], float]


@dataclass(frozen=True, slots=True)
class Played:
    """What a study used: how many trials came to each step, all steps, and from start to end."""

    reached: Mapping[int, int]
    num_steps: int
    duration: int


def better_and_better(number: int, step: int) -> float:
    """No trial stops that is only compared with those before it."""
    return -float(number)


def worse_and_worse(number: int, step: int) -> float:
    return float(number)


def drawn(seed: int) -> Curve:
    """Trials in no order; what they log early says less about their end."""

    def curve(number: int, step: int) -> float:
        end, way = _chance(seed, number), _chance(seed, number, step)
        return end + way / math.sqrt(1 + step)

    return curve


def play(
    pruner: Pruner, curve: Curve, num_trials: int, num_parallel: int, max_steps: int
) -> Played:
    return _Play(pruner, curve, num_trials, num_parallel, max_steps).to_the_end()


class _Play:
    def __init__(
        self, pruner: Pruner, curve: Curve, num_trials: int, num_parallel: int, max_steps: int
    ) -> None:
        self.pruner, self.curve = pruner, curve
        self.num_trials, self.num_parallel, self.max_steps = num_trials, num_parallel, max_steps
        self.trials = Trials(NO_SPACE, ("minimize",), group_of=pruner.group_of)
        # Of each trial the rungs ahead of it with its end, the last first; and where it is.
        self.ahead: dict[int, list[int]] = {}
        self.at: dict[int, int] = {}
        self.waiting: list[tuple[int, int, int]] = []
        self.reached: Counter[int] = Counter()
        self.num_steps = 0

    def to_the_end(self) -> Played:
        now = 0
        self._use_places(now)
        while self.waiting:
            now, number, step = heapq.heappop(self.waiting)
            self._reach(now, number, step)
            self._use_places(now)
        return Played(dict(self.reached), self.num_steps, now)

    def _reach(self, now: int, number: int, step: int) -> None:
        self.reached[step] += 1
        self.num_steps += step - self.at[number]
        self.at[number] = step
        trial, value = self.trials[number], self.curve(number, step)
        if step == self.max_steps:
            self.trials.put(replace(trial, state=TrialState.COMPLETED, values=(value,)))
            return
        measured = (*trial.measured, Measured(step, value))
        self.trials.put(replace(trial, measured=measured))
        verdict = self.pruner.judge(self.trials, number, step).verdict
        if verdict is Verdict.CONTINUE:
            self._go_on(now, number)
        else:
            state = TrialState.STOPPED if verdict is Verdict.STOP else TrialState.PAUSED
            self.trials.put(replace(self.trials[number], state=state))

    def _use_places(self, now: int) -> None:
        while True:
            decision = self.pruner.next(self.trials)
            if isinstance(decision, Drop):
                dropped = self.trials[decision.number]
                self.trials.put(replace(dropped, state=TrialState.STOPPED))
                continue
            if len(self.trials.in_state(TrialState.RUNNING)) >= self.num_parallel:
                return
            if isinstance(decision, Promote):
                promoted = self.trials[decision.number]
                self.trials.put(replace(promoted, state=TrialState.RUNNING))
                self._go_on(now, decision.number)
            elif len(self.trials) == self.num_trials:
                return
            elif isinstance(decision, Fork):
                self._start(now, decision.parent)
            elif self.pruner.may_propose(self.trials):
                self._start(now, None)
            else:
                return

    def _start(self, now: int, parent: int | None) -> None:
        number = len(self.trials)
        at = 0
        if parent is not None:
            at = max((one.step for one in self.trials[parent].measured), default=0)
        rungs = [step for step in self.pruner.steps_of(number) if step > at]
        self.at[number] = at
        self.ahead[number] = [self.max_steps, *reversed(rungs)]
        self.trials.put(Trial(number, {}, parent=parent))
        self._go_on(now, number)

    def _go_on(self, now: int, number: int) -> None:
        step = self.ahead[number].pop()
        heapq.heappush(self.waiting, (now + step - self.at[number], number, step))


def _chance(*what: int) -> float:
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
