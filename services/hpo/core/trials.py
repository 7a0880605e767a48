"""The trials of a study as strategies see them: by number, with indexes that follow each change.

`Trials` is a mutable index that only the search updates (`put`). Everything in it follows from the
trials alone, so one that is built again from stored rows is equal to one that lived all along.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.outliers import bounded, scale_of
from services.hpo.core.ranking import Goal
from services.hpo.core.space import Point, Space

Array = NDArray[np.float64]

# Of the augmented Chebyshev norm: small, so that the largest weighted loss decides.
_AUGMENTATION = 0.05


class TrialState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self not in (self.RUNNING, self.PAUSED)


@dataclass(frozen=True, slots=True)
class Measured:
    """The judged metric at a rung, as logged; None: not logged, or not a finite number."""

    step: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Trial:
    """`values` are the raw objectives, first the judged metric; empty unless COMPLETED.

    `measured` has ascending steps. `parent` is the trial whose checkpoint this one started from.
    """

    number: int
    point: Point
    state: TrialState = TrialState.RUNNING
    values: tuple[float, ...] = ()
    is_safe: bool = True
    measured: tuple[Measured, ...] = ()
    parent: int | None = None

    def at(self, step: int) -> Measured | None:
        """What was measured at this rung; None while nothing is known of it."""
        return next((one for one in self.measured if one.step == step), None)


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """Finished trials of an earlier study, in this study's space: units (m, d), losses (m,)."""

    units: Array
    losses: Array


@dataclass(slots=True)
class Rung:
    """The trials of one group that were measured at one step.

    `ranked` are (loss, number) of those with a value, ascending, smaller being better; `paused`
    likewise those that wait here, with a loss of +inf where they have no value.
    """

    ranked: list[tuple[float, int]] = field(default_factory=list)
    paused: list[tuple[float, int]] = field(default_factory=list)
    values: dict[int, float | None] = field(default_factory=dict)

    def rank(self, loss: float, number: int) -> int:
        """How many of the ranked trials are better; equal losses rank by number."""
        return bisect_left(self.ranked, (loss, number))

    def is_unbeaten(self, loss: float) -> bool:
        return not self.ranked or loss <= self.ranked[0][0]


class Trials:
    """All trials of a study by number, without gaps, and the arrays that samplers read.

    The arrays are read-only views, valid until the next `put`.
    """

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        *,
        seed: int = 0,
        earlier: Sequence[EarlierStudy] = (),
        group_of: Callable[[int], int] = lambda number: 0,
    ) -> None:
        self.space = space
        self.goals = tuple(goals)
        self.seed = seed
        self.earlier = tuple(earlier)
        self.group_of = group_of
        self._trials: list[Trial] = []
        self._by_state: dict[TrialState, set[int]] = {state: set() for state in TrialState}
        self._rungs: dict[tuple[int, int], Rung] = {}
        self._num_open: Counter[int] = Counter()
        self._objectives = np.empty((0, len(self.goals)))
        self._curves = np.empty((0, 3))
        self._units = np.empty((0, 0))
        self._num_encoded = 0

    def put(self, trial: Trial) -> None:
        """Add the next trial, or replace what is known of one. Its point never changes."""
        if trial.number == len(self._trials):
            self._trials.append(trial)
            known: tuple[Measured, ...] = ()
        else:
            before = self._trials[trial.number]
            assert trial.point == before.point, f"the point of trial {trial.number} changed"
            self._trials[trial.number] = trial
            known = before.measured
            self._leave(before)
        for measured in trial.measured[len(known) :]:
            self._measure(trial.number, measured)
        self._enter(trial)
        self._objectives = _with_room(self._objectives, trial.number, len(self.goals))
        self._objectives[trial.number] = self._losses_of(trial)
        self._curves = _with_room(self._curves, trial.number, 3)
        self._curves[trial.number] = self._curve_of(trial)

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials)

    def in_state(self, state: TrialState) -> Set[int]:
        """The numbers of the trials in this state, in no order."""
        return self._by_state[state]

    def rung(self, step: int, group: int = 0) -> Rung:
        """The trials of the group that were measured at this step."""
        return self._rungs.get((group, step)) or Rung()

    @property
    def rungs(self) -> Mapping[tuple[int, int], Rung]:
        """Every rung at which a trial was measured, by group and step."""
        return self._rungs

    @property
    def open_groups(self) -> Set[int]:
        """The groups in which a trial is running or paused, in no order."""
        return self._num_open.keys()

    def loss_of(self, value: float, objective: int = 0) -> float:
        """The value as something to minimize."""
        return value if self.goals[objective] == "minimize" else -value

    @property
    def units(self) -> Array:
        """(n, d) in [0, 1]: each point encoded, NaN where a parameter is inactive."""
        while self._num_encoded < len(self):
            row = self.space.encode(self._trials[self._num_encoded].point)
            self._units = _with_room(self._units, self._num_encoded, len(row))
            self._units[self._num_encoded] = row
            self._num_encoded += 1
        return _view(self._units, len(self))

    @property
    def objectives(self) -> Array:
        """(n, k) losses: of completed safe trials; +inf of failed and unsafe ones; else NaN."""
        return _view(self._objectives, len(self))

    @property
    def curves(self) -> Array:
        """(n, 3): the loss at the first rung with a value; step and loss at the last; else NaN."""
        return _view(self._curves, len(self))

    @property
    def losses(self) -> Array:
        """(n,) the losses of the first objective, as in `objectives`."""
        return self.objectives[:, 0]

    def losses_for(self, number: int) -> Array:
        """(n,) what the sampler minimizes when it proposes this trial.

        With several objectives: their augmented Chebyshev norm, each scaled to [0, 1] without what
        diverged, with weights drawn for each number, so that the trials cover the front (ParEGO).
        """
        if len(self.goals) == 1:
            return self.losses
        finite = np.isfinite(self.objectives).all(axis=1)
        if not finite.any():
            return self.losses
        columns = (
            bounded(column, scale_of(column[finite]).largest) for column in self.objectives.T
        )
        objectives = np.stack(tuple(columns), axis=1)
        low, high = objectives[finite].min(axis=0), objectives[finite].max(axis=0)
        scaled = (objectives - low) / np.where(high > low, high - low, 1.0)
        bits = np.random.Philox(key=(self.seed << 64) | number)
        weights = np.random.Generator(bits).dirichlet(np.ones(len(self.goals)))
        norm = (scaled * weights).max(axis=1) + _AUGMENTATION * (scaled * weights).sum(axis=1)
        return np.where(finite, norm, self.losses)

    def _measure(self, number: int, measured: Measured) -> None:
        rung = self._rungs.setdefault((self.group_of(number), measured.step), Rung())
        rung.values[number] = measured.value
        if measured.value is not None:
            insort(rung.ranked, (self.loss_of(measured.value), number))

    def _enter(self, trial: Trial) -> None:
        self._by_state[trial.state].add(trial.number)
        if not trial.state.is_final:
            self._num_open[self.group_of(trial.number)] += 1
        if trial.state is TrialState.PAUSED and trial.measured:
            insort(self._rung_of(trial).paused, self._place_of(trial))

    def _leave(self, trial: Trial) -> None:
        self._by_state[trial.state].discard(trial.number)
        if not trial.state.is_final:
            group = self.group_of(trial.number)
            self._num_open[group] -= 1
            if not self._num_open[group]:
                del self._num_open[group]
        if trial.state is TrialState.PAUSED and trial.measured:
            paused = self._rung_of(trial).paused
            del paused[bisect_left(paused, self._place_of(trial))]

    def _rung_of(self, trial: Trial) -> Rung:
        return self._rungs[self.group_of(trial.number), trial.measured[-1].step]

    def _place_of(self, trial: Trial) -> tuple[float, int]:
        value = trial.measured[-1].value
        return (math.inf if value is None else self.loss_of(value), trial.number)

    def _curve_of(self, trial: Trial) -> list[float]:
        known = [
            (one.step, self.loss_of(one.value)) for one in trial.measured if one.value is not None
        ]
        return [known[0][1], *known[-1]] if known else [math.nan] * 3

    def _losses_of(self, trial: Trial) -> list[float]:
        if trial.state is TrialState.FAILED or not trial.is_safe:
            return [math.inf] * len(self.goals)
        if trial.state is not TrialState.COMPLETED:
            return [math.nan] * len(self.goals)
        return [self.loss_of(value, place) for place, value in enumerate(trial.values)]


def _with_room(rows: Array, number: int, num_columns: int) -> Array:
    """The array with a row of this number; it grows by doubling."""
    if number < len(rows):
        return rows
    larger = np.full((max(64, 2 * len(rows)), num_columns), math.nan)
    if len(rows):
        larger[: len(rows)] = rows
    return larger


def _view(rows: Array, num_rows: int) -> Array:
    view = rows[:num_rows]
    view.flags.writeable = False
    return view
