"""Metric samples between `run.log` and the wire: columns, last values, and the best so far.

Pure. A batch is cut once and never changes, so its number identifies its content wherever it is
sent again. Values that are no numbers are left out and counted, never raised: reporting must not
stop training.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_SAMPLES_PER_BATCH = 4000  # about 120 KB of JSON, half of what one event may hold
MAX_SERIES_PER_BATCH = 500
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,127}")

Entry = tuple[int, Mapping[str, Any]]
SampleValue = float | str


@dataclass(slots=True)
class Columns:
    """Samples of several series, each a list of steps and a list of values."""

    series: dict[str, tuple[list[int], list[SampleValue]]] = field(default_factory=dict)
    num_samples: int = 0
    num_refused: int = 0

    @property
    def is_full(self) -> bool:
        return self.num_samples >= MAX_SAMPLES_PER_BATCH or len(self.series) >= MAX_SERIES_PER_BATCH

    def add(self, step: int, name: str, value: float) -> None:
        column = self.series.get(name)
        if column is None:
            if _NAME.fullmatch(name) is None:
                self.num_refused += 1
                return
            column = self.series[name] = ([], [])
        column[0].append(step)
        column[1].append(value if math.isfinite(value) else _spelt(value))
        self.num_samples += 1

    def to_json(self) -> dict[str, dict[str, list[Any]]]:
        return {
            name: {"steps": steps, "values": values}
            for name, (steps, values) in self.series.items()
        }


def _spelt(value: float) -> str:
    """JSON has no such numbers; a diverged loss must still arrive."""
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def to_number(value: Any) -> float | None:
    """A plain number out of a number, a one-element tensor or array; None for anything else."""
    if isinstance(value, int | float):
        return float(value)
    item = getattr(value, "item", None)
    if item is None:
        return None
    try:
        return float(item())
    except (TypeError, ValueError, RuntimeError):
        return None


@dataclass(slots=True)
class Standing:
    """The last finite value of every series, and the best of the job's metric."""

    metric: str | None = None
    is_maximized: bool = False
    last: dict[str, float] = field(default_factory=dict)
    best: tuple[float, int] | None = None

    def take(self, step: int, name: str, value: float) -> None:
        if not math.isfinite(value):
            return
        self.last[name] = value
        if name != self.metric:
            return
        if self.best is None or (
            value > self.best[0] if self.is_maximized else value < self.best[0]
        ):
            self.best = (value, step)

    def to_json(self) -> dict[str, Any]:
        return {"last": dict(self.last), "best": None if self.best is None else list(self.best)}

    def restore(self, document: Mapping[str, Any]) -> None:
        self.last = {name: float(value) for name, value in document["last"].items()}
        best = document["best"]
        self.best = None if best is None else (float(best[0]), int(best[1]))


def sort_in(entries: Iterable[Entry], columns: Columns, standing: Standing) -> None:
    """Put logged entries into columns, and take note of last and best values."""
    for step, values in entries:
        for name, value in values.items():
            number = value if type(value) is float else to_number(value)
            if number is None:
                columns.num_refused += 1
                continue
            columns.add(step, name, number)
            standing.take(step, name, number)
