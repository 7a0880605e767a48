"""Metric samples between `run.log` and the wire: columns, last values, and the best so far.

Pure. Samples are sorted in whole chunks, because this work is done for every logged value. Values
that are not numbers are refused and counted, never raised: reporting must not stop training.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from drivetrain_schemas.specs import (
    MAX_LAST_VALUES,
    MAX_METRIC_NAME_CHARACTERS,
    METRIC_NAME_WORDS,
    is_metric_name,
)
from drivetrain_schemas.system_series import is_system_series

MAX_SAMPLES_PER_CHUNK = 2000
# One more series of a whole chunk may follow: about 180 KB of JSON; an event may have 256 KiB.
MAX_SAMPLES_PER_BATCH = 4000
MAX_SERIES_PER_BATCH = 500
NOT_A_NUMBER = "is not a number: log a number, or a tensor or an array of one element"
NOT_A_NAME = (
    "is not the name of a metric: write a string of at most "
    f"{MAX_METRIC_NAME_CHARACTERS} {METRIC_NAME_WORDS}"
)

TAKEN = "is a series that the platform itself records: log it under another name"

# step, name, value, step, name, value ...: no container per sample, because thousands of new
# containers make Python's garbage collector scan all objects of the process.
Flat = list[Any]
Series = dict[str, tuple[list[int], list[float]]]


@dataclass(slots=True)
class Columns:
    """Samples of several series, each a list of steps and a list of values.

    `refusals`: of each name with refused samples, the reason with its fix.
    """

    series: Series = field(default_factory=dict)
    num_samples: int = 0
    num_refused: int = 0
    refusals: dict[Any, str] = field(default_factory=dict)

    @staticmethod
    def of(logged: Flat) -> "Columns":
        columns = Columns()
        columns.series = series = _in_turn(logged) or columns._one_by_one(logged)
        for name in [name for name in series if not is_metric_name(name) or is_system_series(name)]:
            columns.num_refused += len(series.pop(name)[0])
            columns.refusals[name] = TAKEN if is_metric_name(name) else NOT_A_NAME
        columns.num_samples = sum(len(steps) for steps, _ in series.values())
        return columns

    def _one_by_one(self, logged: Flat) -> Series:
        series: Series = {}
        items = iter(logged)
        for step, name, value in zip(items, items, items, strict=True):
            if type(value) is not float:
                value = to_number(value)
                if value is None:
                    self.num_refused += 1
                    self.refusals[name] = NOT_A_NUMBER
                    continue
            column = series.get(name)
            if column is None:
                column = series[name] = ([], [])
            column[0].append(step)
            column[1].append(value)
        return series

    def to_json(self) -> Iterator[dict[str, dict[str, list[Any]]]]:
        """The columns in pieces that fit into an event each."""
        piece: dict[str, dict[str, list[Any]]] = {}
        size = 0
        for name, (steps, values) in self.series.items():
            piece[name] = {"steps": steps, "values": _spelt(values)}
            size += len(steps)
            if size >= MAX_SAMPLES_PER_BATCH or len(piece) >= MAX_SERIES_PER_BATCH:
                yield piece
                piece, size = {}, 0
        if piece:
            yield piece


def _in_turn(logged: Flat) -> Series | None:
    """The series of samples that are as in almost every loop: floats, and the same names again and
    again in the same order. None for others. Several times as fast as a look at each sample."""
    names, values = logged[1::3], logged[2::3]
    if set(map(type, values)) != {float}:
        return None
    first, num_series = names[0], 1
    while num_series < len(names) and names[num_series] != first:
        num_series += 1
    turn = names[:num_series]
    num_turns = -(-len(names) // num_series)
    if len(set(turn)) < num_series or names != (turn * num_turns)[: len(names)]:
        return None
    every = 3 * num_series
    return {name: (logged[3 * i :: every], values[i::num_series]) for i, name in enumerate(turn)}


def num_samples_of(piece: Mapping[str, Mapping[str, list[Any]]]) -> int:
    return sum(len(column["steps"]) for column in piece.values())


def _spelt(values: list[float]) -> list[Any]:
    """JSON has no NaN and no infinity; a diverged loss must still arrive."""
    if all(map(math.isfinite, values)):
        return values
    return [value if math.isfinite(value) else str(value) for value in values]


def to_number(value: Any) -> float | None:
    """A number from a number or a one-element tensor or array; None for anything else."""
    try:
        return float(value if isinstance(value, int | float) else value.item())
    except Exception:  # a value that is not a number may raise anything
        return None


@dataclass(slots=True)
class LastAndBest:
    """The last finite value of every series with its step, and the best of the job's metric.

    Bounded: of more series than a result may hold, the first ones and the metric are kept.
    """

    metric: str | None = None
    is_maximized: bool = False
    last: dict[str, tuple[float, int]] = field(default_factory=dict)
    best: tuple[float, int] | None = None
    saved: tuple[float, int] | None = None  # the best value in a checkpoint

    def take(self, series: Series) -> list[str]:
        """Returns the names of the series that do not fit."""
        left_out = []
        for name, (steps, values) in series.items():
            if name == self.metric:
                choose = max if self.is_maximized else min
                best = choose(filter(math.isfinite, values), default=None)
                if best is not None:
                    self._consider(steps[values.index(best)], best)
            if not self._has_room(name):
                left_out.append(name)
                continue
            backwards = zip(reversed(values), reversed(steps), strict=True)
            last = next((pair for pair in backwards if math.isfinite(pair[0])), None)
            if last is not None:
                self.last[name] = last
        return left_out

    def last_values(self) -> dict[str, float]:
        return {name: value for name, (value, _) in self.last.items()}

    def values_at(self, step: int) -> dict[str, float]:
        """The values of the weights after exactly this step."""
        return {name: value for name, (value, at_step) in self.last.items() if at_step == step}

    def saved_with(self, step: int, metrics: Mapping[str, float]) -> tuple[float, int] | None:
        """`saved`, once there is a checkpoint of this step with these values."""
        value = metrics.get(self.metric or "")
        if value is None or (self.saved and not self._is_better(value, self.saved[0])):
            return self.saved
        return value, step

    def unsaved_best(self) -> str | None:
        """A sentence if no checkpoint holds the weights of the best value; None if one does."""
        if self.best is None or (self.saved and self.saved[0] == self.best[0]):
            return None
        value, step = self.best
        text = f"best {self.metric} {value:.6g} at step {step} was not saved"
        if self.saved is None:
            return text
        return f"{text}; best saved: {self.saved[0]:.6g} at step {self.saved[1]}"

    def _has_room(self, name: str) -> bool:
        if name in self.last or name == self.metric:
            return True
        is_reserved = self.metric is not None and self.metric not in self.last
        return len(self.last) + is_reserved < MAX_LAST_VALUES

    def _consider(self, step: int, value: float) -> None:
        if self.best is None or self._is_better(value, self.best[0]):
            self.best = (value, step)

    def _is_better(self, value: float, than: float) -> bool:
        return value > than if self.is_maximized else value < than

    def to_json(self) -> dict[str, Any]:
        return {
            "last": {name: list(pair) for name, pair in self.last.items()},
            "best": self.best,
            "saved": self.saved,
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        self.last = {name: (float(value), step) for name, (value, step) in document["last"].items()}
        self.best = _pair(document["best"])
        self.saved = _pair(document.get("saved"))  # absent in older checkpoints


def _pair(value: Any) -> tuple[float, int] | None:
    return None if value is None else (float(value[0]), int(value[1]))
