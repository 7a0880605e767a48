"""Live windows: what a run does in each half minute, folded from its batches and heartbeats.

In: batches of samples of one rank, heartbeats of one pod, each with the time at which the broker
received it. Out: the newest windows of that rank or pod. A batch counts once, however often it
arrives: its number is remembered. A heartbeat may be folded again without effect. So the same
records give the same windows after any restart.

Only what is watched is summed up: losses and gradient norms, of rank 0, whose values are the job's,
and of all ranks the utilisation of devices and the seconds of own work before each exchange.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from drivetrain_schemas.specs import is_loss
from drivetrain_schemas.system_series import STEP_WORK, is_system_series

WINDOW_SECONDS = 30
# Records that come later than this many windows after their time add nothing.
KEPT_WINDOWS = 4
MAX_SERIES = 8
MAX_SESSIONS = 16
MAX_GAPS = 32

_GRADIENT_NORM = re.compile(r"grad(ient)?s?[ _./-]?norm", re.I)
_UTILISATION = re.compile(r"_utilisation_percent$")

Columns = Mapping[str, tuple[Sequence[int], Sequence[float]]]
# Batch numbers from the first to the last of each, ascending, with gaps in between.
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the values of a series. `squares`: sum of squared differences from the mean."""

    num_finite: int = 0
    num_not_finite: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.squares / self.num_finite) if self.num_finite else 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The first and the last step that a pod reported in a window; times in seconds."""

    first_at: float
    first_step: int
    last_at: float
    last_step: int

    @property
    def steps_per_second(self) -> float | None:
        seconds = self.last_at - self.first_at
        return (self.last_step - self.first_step) / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Window:
    """`starts_at`: seconds since 1970, a multiple of WINDOW_SECONDS."""

    starts_at: int
    series: Mapping[str, Statistics] = field(default_factory=dict)
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A rank of a run, or a pod of it: its newest windows, by time, and the batches in them.

    `batches`: the spans of batch numbers seen of each session, the newest session last.
    """

    windows: tuple[Window, ...] = ()
    batches: tuple[tuple[str, Spans], ...] = ()


def is_gradient_norm(name: str) -> bool:
    return _GRADIENT_NORM.search(name) is not None


def is_utilisation(name: str) -> bool:
    return is_system_series(name) and _UTILISATION.search(name) is not None


def is_of_all_ranks(name: str) -> bool:
    """Watched of every rank, and not a series of the program."""
    return name == STEP_WORK or is_utilisation(name)


def add_batch(
    source: Source, received_at: float, rank: int, session: str, batch: int, columns: Columns
) -> Source:
    """The source with this batch; unchanged where it is known."""
    spans = dict(source.batches)
    known = spans.pop(session, ())
    added = _with_number(known, batch)
    if added == known:
        return source
    spans[session] = added
    source = replace(source, batches=tuple(spans.items())[-MAX_SESSIONS:])
    watched = {
        name: _statistics(values)
        for name, (_, values) in columns.items()
        if is_of_all_ranks(name) or (rank == 0 and (is_loss(name) or is_gradient_norm(name)))
    }
    if not watched:
        return source
    window = _window(source, received_at)
    if window is None:
        return source
    series = dict(window.series)
    for name, statistics in watched.items():
        if name in series or len(series) < MAX_SERIES:
            series[name] = _merged(series.get(name, Statistics()), statistics)
    return _put(source, replace(window, series=series))


def add_heartbeat(source: Source, received_at: float, step: int) -> Source:
    """The source with the step that its pod has reached; a window begins where the last one ended,
    so that no step falls between two."""
    window = _window(source, received_at)
    if window is None:
        return source
    progress = window.progress
    if progress is None:
        before = source.windows[-1] if source.windows else None
        is_next = before is not None and before.starts_at == window.starts_at - WINDOW_SECONDS
        last = before.progress if before is not None and is_next else None
        if last is not None and last.last_at >= received_at:
            return source
        progress = (
            Progress(received_at, step, received_at, step)
            if last is None
            else Progress(last.last_at, last.last_step, received_at, step)
        )
    elif received_at > progress.last_at:
        progress = replace(progress, last_at=received_at, last_step=max(step, progress.last_step))
    return _put(source, replace(window, progress=progress))


def _window(source: Source, at: float) -> Window | None:
    """The window of this time; None where it is over for too long."""
    starts_at = int(at // WINDOW_SECONDS) * WINDOW_SECONDS
    for window in source.windows:
        if window.starts_at == starts_at:
            return window
    if source.windows and starts_at <= source.windows[-1].starts_at - (
        KEPT_WINDOWS * WINDOW_SECONDS
    ):
        return None
    return Window(starts_at)


def _put(source: Source, window: Window) -> Source:
    others = {one.starts_at: one for one in source.windows} | {window.starts_at: window}
    windows = tuple(others[starts_at] for starts_at in sorted(others))
    return replace(source, windows=windows[-KEPT_WINDOWS:])


def _with_number(spans: Spans, number: int) -> Spans:
    """The spans with one more number. Of too many gaps the earliest is closed."""
    for low, high in spans:
        if low <= number <= high:
            return spans
    merged: list[tuple[int, int]] = []
    for low, high in sorted([*spans, (number, number)]):
        if merged and low == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    if len(merged) > MAX_GAPS:
        merged[:2] = [(merged[0][0], merged[1][1])]
    return tuple(merged)


def _statistics(values: Sequence[float]) -> Statistics:
    finite = [value for value in values if math.isfinite(value)]
    num_not_finite = len(values) - len(finite)
    if not finite:
        return Statistics(num_not_finite=num_not_finite)
    mean = _bounded(math.fsum(value / len(finite) for value in finite))
    return Statistics(
        num_finite=len(finite),
        num_not_finite=num_not_finite,
        mean=mean,
        squares=_bounded(sum(_square(value - mean) for value in finite)),
        low=min(finite),
        high=max(finite),
    )


def _merged(one: Statistics, other: Statistics) -> Statistics:
    """Both together (Chan, Golub, LeVeque 1979)."""
    num_not_finite = one.num_not_finite + other.num_not_finite
    if not one.num_finite or not other.num_finite:
        some = one if one.num_finite else other
        return replace(some, num_not_finite=num_not_finite)
    num = one.num_finite + other.num_finite
    difference = other.mean - one.mean
    share = other.num_finite / num
    return Statistics(
        num_finite=num,
        num_not_finite=num_not_finite,
        mean=_bounded(one.mean + difference * share),
        squares=_bounded(
            one.squares + other.squares + _square(difference) * one.num_finite * share
        ),
        low=min(one.low, other.low),
        high=max(one.high, other.high),
    )


# JSON has no infinity: sums of huge values stop at this bound.
_BOUND = 1e300


def _bounded(value: float) -> float:
    return min(max(value, -_BOUND), _BOUND)


def _square(value: float) -> float:
    return value * value if abs(value) < 1e150 else _BOUND
