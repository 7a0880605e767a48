"""A study on simulated machines: what a sampler and a pruner decide about it, event by event.

Curves, durations, failures, preemptions and late or missing measurements follow from the world's
seed, the trial's number and the step, so two studies of one world differ only in their decisions.
With `is_crashing` the strategies and their index are built again from the stored rows before every
single decision.
"""

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from services.hpo.core.ranking import Goal
from services.hpo.core.space import Point, Space
from services.hpo.core.strategies import (
    Drop,
    Fork,
    Promote,
    Proposal,
    Pruner,
    Sampler,
    Verdict,
)
from services.hpo.core.trials import Measured, Trial, Trials, TrialState

MAX_EVENTS = 100_000
Strategies = tuple[Sampler, Pruner]
Decision = tuple[Any, ...]


class Index(Protocol):
    def __call__(self, space: Space, goals: tuple[Goal, ...], group_of: Any) -> Trials: ...


def make_index(space: Space, goals: tuple[Goal, ...], group_of: Any) -> Trials:
    return Trials(space, goals, group_of=group_of)


@dataclass(frozen=True, slots=True)
class World:
    """Parts of 1 are probabilities: of a failure per rung, a preemption, a value that is missing
    or that arrives after the trial has passed its rung, or one near the ends of what a float holds.
    """

    seed: int = 0
    goal: Goal = "minimize"
    max_trials: int = 27
    max_parallel: int = 4
    max_steps: int = 81
    failing: float = 0.0
    preempted: float = 0.0
    missing: float = 0.0
    late: float = 0.0
    diverging: float = 0.0
    is_crashing: bool = False

    def chance(self, *what: object) -> float:
        digest = hashlib.sha256(repr((self.seed, *what)).encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def value(self, number: int, step: int) -> float:
        """A learning curve: a limit, the way to it, and noise."""
        if self.happens("diverging", number, step):
            return 1.7e308 if self.chance("sign", number, step) < 0.5 else -1.7e308
        limit, slope = self.chance("limit", number), self.chance("slope", number)
        loss = limit + slope / (1 + step) ** 0.5 + 0.02 * self.chance("noise", number, step)
        return loss if self.goal == "minimize" else -loss

    def seconds(self, number: int, step: int, steps: int) -> float:
        wait = 50 * self.chance("wait", number, step) * self.happens("preempted", number, step)
        return steps * (0.5 + self.chance("speed", number)) + wait

    def happens(self, what: str, number: int, step: int) -> bool:
        return self.chance(what, number, step) < getattr(self, what)


class Drawn:
    """The simplest sampler: every point is drawn by bits of its number."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.seed = space, seed

    def propose(self, trials: Trials, number: int) -> Proposal | None:
        def bits(name: str, attempt: int) -> int:
            text = f"{self.seed} {number} {name} {attempt}"
            return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")

        point = self.space.draw(bits)
        return point and Proposal(point, "Drawn at random.")


@dataclass
class Study:
    """What was decided, in order, and the trials that came of it."""

    world: World
    space: Space
    make: Callable[[World], Strategies]
    index: Index = make_index
    decisions: list[Decision] = field(default_factory=list)
    num_steps: int = 0

    def __post_init__(self) -> None:
        self._rows: list[Trial] = []
        self._rungs: dict[int, tuple[int, ...]] = {}
        self._at: dict[int, int] = {}
        self._next_step: dict[int, int] = {}
        self._ending: set[int] = set()
        self._events: list[tuple[float, int, int, str, int]] = []
        self._order = 0
        self._load()

    def play(self) -> "Study":
        self._fill(0.0)
        for _ in range(MAX_EVENTS):
            if not self._events:
                return self
            now, order, number, kind, step = heapq.heappop(self._events)
            if kind == "step" and self._next_step[number] == order:
                self._reach(now, self.trials[number], step)
            elif kind == "measured":
                self._hear(now, self.trials[number], step)
            elif kind != "step" and not self.trials[number].state.is_final:
                self._put(replace(self.trials[number], state=TrialState(kind)))
            self._fill(now)
        raise AssertionError("the study does not end")

    def _reach(self, now: float, trial: Trial, step: int) -> None:
        number, world = trial.number, self.world
        self.num_steps += step - self._at[number]
        self._at[number] = step
        if world.happens("failing", number, step):
            self._put(replace(trial, state=TrialState.FAILED))
        elif step == world.max_steps:
            values = (world.value(number, step),)
            self._put(replace(trial, state=TrialState.COMPLETED, values=values))
        else:
            self._go_on(now, number)
            delay = 20 * world.chance("delay", number, step) * world.happens("late", number, step)
            self._plan(now + delay, number, "measured", step)

    def _hear(self, now: float, trial: Trial, step: int) -> None:
        number, world = trial.number, self.world
        is_late = trial.measured and trial.measured[-1].step >= step
        # What a trial measured after it was told to end says nothing about its place there.
        if is_late or number in self._ending:
            return
        value = None if world.happens("missing", number, step) else world.value(number, step)
        self._put(replace(trial, measured=(*trial.measured, Measured(step, value))))
        if trial.state.is_final:
            return
        judgement = self.pruner.judge(self.trials, number, step)
        self.decisions.append(("judge", number, step, judgement))
        if judgement.verdict is not Verdict.CONTINUE:
            ended = "stopped" if judgement.verdict is Verdict.STOP else "paused"
            self._ending.add(number)
            self._next_step[number] = -1
            self._plan(now + 3 * world.chance("ending", number, step), number, ended)

    def _fill(self, now: float) -> None:
        """What the free slots do, in the order that the protocol of strategies gives."""
        while True:
            if self.world.is_crashing:
                self._load()
            has_room = len(self.trials.in_state(TrialState.RUNNING)) < self.world.max_parallel
            decision = self.pruner.next(self.trials)
            if isinstance(decision, Drop):
                self._change(decision, decision.number, TrialState.STOPPED)
            elif not has_room:
                return
            elif isinstance(decision, Promote):
                self._change(decision, decision.number, TrialState.RUNNING)
                self._go_on(now, decision.number)
            elif len(self._rows) == self.world.max_trials:
                return
            elif isinstance(decision, Fork):
                assert self.trials[decision.parent].state is TrialState.RUNNING
                self._begin(now, decision, decision.point, decision.parent)
            elif not self.pruner.may_propose(self.trials):
                return
            elif proposal := self.sampler.propose(self.trials, len(self._rows)):
                self._begin(now, proposal, proposal.point, None)
            else:
                return

    def _change(self, decision: Promote | Drop, number: int, state: TrialState) -> None:
        assert self.trials[number].state is TrialState.PAUSED, f"{decision}: it does not wait"
        self.decisions.append((type(decision).__name__, number))
        self._ending.discard(number)
        self._put(replace(self.trials[number], state=state))

    def _begin(self, now: float, decision: object, point: Point, parent: int | None) -> None:
        number = len(self._rows)
        assert self.space.is_feasible(point), f"{point} is not in the space"
        self.decisions.append((type(decision).__name__, number, tuple(point.items()), parent))
        start = 0 if parent is None else self._at[parent]
        self._rungs[number] = self.pruner.steps_of(number)
        self._put(Trial(number, point, parent=parent))
        self._at[number] = start
        self._go_on(now, number)

    def _go_on(self, now: float, number: int) -> None:
        at = self._at[number]
        ahead = [step for step in self._rungs[number] if step > at]
        step = ahead[0] if ahead else self.world.max_steps
        self._plan(now + self.world.seconds(number, step, step - at), number, "step", step)
        self._next_step[number] = self._order

    def _plan(self, at: float, number: int, kind: str, step: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, number, kind, step))

    def _put(self, trial: Trial) -> None:
        self._rows[trial.number : trial.number + 1] = [trial]
        self.trials.put(trial)
        if self.world.is_crashing:
            self._load()

    def _load(self) -> None:
        """As after a restart: everything from the rows, in the order of their numbers."""
        self.sampler, self.pruner = self.make(self.world)
        self.trials = self.index(self.space, (self.world.goal,), self.pruner.group_of)
        for trial in self._rows:
            self.trials.put(trial)
