"""What a study will use before it starts: trials, rungs, steps, device-hours, time and money.

In: what is asked for, and what is known of one step (from earlier trials), if anything. Out: spans.
The likely value and the bounds come from the study being played through on different learning
curves (`rehearsal`): they say what the pruner may spend, not how good the trials will be. What is
not known is named and left out, never guessed. Failed trials and retries are not foreseen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from drivetrain_schemas.pruners import PatiencePruner, ThresholdPruner
from services.hpo.core import rehearsal
from services.hpo.core.pruners import PRUNERS
from services.hpo.core.rehearsal import NO_SPACE, Curve, Played

# Larger studies are played with fewer trials and the result is scaled: this bounds the time.
MAX_PLAYED_TRIALS = 128
MAX_PLAYED_RUNGS = 2048
NUM_DRAWN = 3
_HOUR = 3600.0
# Beyond any bound of a threshold.
_FAR = 1.7e308


@dataclass(frozen=True, slots=True)
class Span:
    low: float
    likely: float
    high: float

    def times(self, factor: "float | Span") -> "Span":
        by = factor if isinstance(factor, Span) else Span(factor, factor, factor)
        return Span(self.low * by.low, self.likely * by.likely, self.high * by.high)

    def at_most(self, most: float | None) -> "Span":
        if most is None:
            return self
        return Span(min(self.low, most), min(self.likely, most), min(self.high, most))


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of a study that its use depends on; `pruner` is its spec, None: no pruner."""

    num_trials: int
    max_parallel_trials: int
    devices: int
    max_steps: int | None = None
    pruner: Any = None
    max_device_hours: float | None = None
    max_cost_usd: float | None = None
    max_hours: float | None = None
    may_end_sooner: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """Of earlier trials: seconds of a step, and of a whole trial, on all its devices; the price."""

    seconds_per_step: Span | None = None
    seconds_per_trial: Span | None = None
    usd_per_device_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Rung:
    """How many trials come to this step; the last rung is the end of a trial."""

    step: int
    num_trials: Span


@dataclass(frozen=True, slots=True)
class Preview:
    """Spans of what the study uses; None where something is not known, which `unknown` names.

    `steps_without_pruner` is what the same number of whole trials would use. `reached_limits` are
    those of the study's limits that end it before its last trial, if the high values come true.
    """

    num_trials: int
    rungs: tuple[Rung, ...]
    steps: Span | None
    steps_without_pruner: int | None
    device_hours: Span | None
    cost_usd: Span | None
    hours: Span | None
    reached_limits: tuple[str, ...]
    unknown: tuple[str, ...]


def preview(asked: Asked, known: Known) -> Preview:
    played = _played(asked)
    seconds, duration = _seconds(asked, known, played)
    device_hours = seconds and seconds.times(asked.devices / _HOUR)
    price = known.usd_per_device_hour
    cost = None if device_hours is None or price is None else device_hours.times(price)
    hours = duration and duration.times(1 / _HOUR)
    limits = (
        ("device_hours", device_hours, asked.max_device_hours),
        ("cost_usd", cost, asked.max_cost_usd),
        ("hours", hours, asked.max_hours),
    )
    reached = tuple(name for name, span, most in limits if span and most and span.high > most)
    device_hours, cost, hours = (span and span.at_most(most) for _, span, most in limits)
    steps, whole = None, None
    if asked.max_steps is not None:
        steps = _span(one.num_steps for one in played)
        whole = asked.num_trials * asked.max_steps
    return Preview(
        num_trials=asked.num_trials,
        rungs=_rungs(played) if asked.max_steps is not None else (),
        steps=steps,
        steps_without_pruner=whole,
        device_hours=device_hours,
        cost_usd=cost,
        hours=hours,
        reached_limits=reached,
        unknown=tuple(_unknown(asked, known, seconds)),
    )


def _played(asked: Asked) -> list[Played]:
    """The studies on different curves; the likely ones first, then the bounds."""
    steps = asked.max_steps or 1
    if asked.pruner is None:
        whole = asked.num_trials
        rounds = -(-whole // asked.max_parallel_trials)
        return [Played({steps: whole}, whole * steps, rounds * steps)]
    make = PRUNERS[type(asked.pruner)]
    num = min(asked.num_trials, MAX_PLAYED_TRIALS)
    num_rungs = len(make(asked.pruner, steps, num, 0, NO_SPACE).steps_of(0))
    num = min(num, max(32, MAX_PLAYED_RUNGS // max(1, num_rungs)))
    scale = asked.num_trials / num
    parallel = max(1, min(num, round(asked.max_parallel_trials / scale)))
    pruner = make(asked.pruner, steps, num, 0, NO_SPACE)
    return [
        _scaled(rehearsal.play(pruner, curve, num, parallel, steps), scale, asked, parallel)
        for curve in _curves(asked.pruner)
    ]


def _curves(pruner: Any) -> list[Curve]:
    """What the study may meet: pruners that look at values, not at ranks, meet their bounds."""
    if isinstance(pruner, ThresholdPruner):
        outside = _FAR if pruner.upper is not None else -_FAR
        inside = pruner.upper if pruner.upper is not None else pruner.lower
        assert inside is not None, "a threshold has a bound"
        return [lambda number, step: inside, lambda number, step: outside]
    if isinstance(pruner, PatiencePruner):
        return [lambda number, step: 1e300 / step, lambda number, step: 0.0]
    drawn = [rehearsal.drawn(seed) for seed in range(NUM_DRAWN)]
    return [*drawn, rehearsal.better_and_better, rehearsal.worse_and_worse]


def _scaled(played: Played, scale: float, asked: Asked, parallel: int) -> Played:
    reached = {step: round(num * scale) for step, num in played.reached.items()}
    # The trials that were left out run beside or after the others.
    longer = scale * parallel / min(asked.max_parallel_trials, asked.num_trials)
    return Played(reached, round(played.num_steps * scale), round(played.duration * longer))


def _seconds(asked: Asked, known: Known, played: list[Played]) -> tuple[Span | None, Span | None]:
    """Of all trials together, and from the start of the study to its end."""
    steps = _span(one.num_steps for one in played)
    duration = _span(one.duration for one in played)
    if asked.max_steps is not None and known.seconds_per_step is not None:
        return steps.times(known.seconds_per_step), duration.times(known.seconds_per_step)
    if asked.pruner is None and known.seconds_per_trial is not None:
        per_step = known.seconds_per_trial.times(1 / (asked.max_steps or 1))
        return steps.times(per_step), duration.times(per_step)
    return None, None


def _rungs(played: list[Played]) -> tuple[Rung, ...]:
    steps = sorted({step for one in played for step in one.reached})
    return tuple(Rung(step, _span(one.reached.get(step, 0) for one in played)) for step in steps)


def _span(values: Iterable[float]) -> Span:
    """The first NUM_DRAWN are likely ones; of fewer, the first."""
    found = list(values)
    likely = median(found[:NUM_DRAWN]) if len(found) > NUM_DRAWN else found[0]
    return Span(min(found), likely, max(found))


def _unknown(asked: Asked, known: Known, seconds: Span | None) -> Iterable[str]:
    if asked.max_steps is None:
        yield "job.max_steps is not given, so the steps of a trial are not known"
    if seconds is None:
        yield "no earlier trial of this job has ended, so the time of a step is not known"
    if known.usd_per_device_hour is None:
        yield "no earlier trial of this job was charged, so the price of a device is not known"
    if asked.may_end_sooner:
        yield "limits.no_improvement and limits.failed_trials may end the study sooner"
