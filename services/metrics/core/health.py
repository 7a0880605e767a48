"""What the windows of a run say of its health, folded window by window.

| alert | raised when, in so many windows in a row | windows |
|---|---|---|
| diverging | a loss in `core/watched.py` is far above its lowest mean (`_diverges_above`) | 3 |
| straggler | a rank works over 1.25 times as long as the middle one before it waits | 4 |
| straggler | where none waits: a pod makes under 80 % of the middle one's steps per second | 4 |
| low_utilisation | the devices of the run are used under 75 % on average | 10 |
| slower | the median of 20 windows is over 5 % below that of the first 20, and not by noise | 5 |

It is cleared after as many windows in a row of which the opposite holds. A window in which a figure
is not known counts for neither.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median, median_low

from services.metrics.core.windows import Statistics

DIVERGES_BY = 0.5
DIVERGES_BY_GAINED = 0.5
DIVERGES_BY_NOISE = 6.0
# The part of one window in the running mean of how means change.
_WOBBLE_SHARE = 0.1
STRAGGLES_ABOVE = 1.25
# Of a step: what the slowest rank costs the others. Less is not worth an alert.
STRAGGLES_COSTS = 0.05
STRAGGLES_BELOW = 0.8
UTILISATION_PERCENT = 75.0
SLOWER_BY = 0.05
# In standard errors of the difference of both medians.
SLOWER_BY_ERRORS = 4.0
# Rates of the first window are of imports, compilation and filling caches.
NUM_WARM_UP = 1
NUM_RATES = 20

WINDOWS_IN_A_ROW = {"diverging": 3, "straggler": 4, "low_utilisation": 10, "slower": 5}
# From the median of absolute differences to a standard deviation, and on to a median's error.
_DEVIATION_OF_MAD = 1.4826
_ERROR_OF_MEDIAN = 1.2533


@dataclass(frozen=True, slots=True)
class RunWindow:
    """One window of all ranks and pods: steps per second by pod, losses of rank 0 by name, the
    utilisation of each device in percent, and by rank the mean seconds of its own work in a step,
    before it waits for the others."""

    rates: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, Statistics] = field(default_factory=dict)
    utilisation: tuple[float, ...] = ()
    work: Mapping[int, float] = field(default_factory=dict)

    def with_losses(self, names: Collection[str]) -> "RunWindow":
        """Without the losses that nobody watches."""
        watched = {name: found for name, found in self.losses.items() if name in names}
        return replace(self, losses=watched)

    @property
    def steps_per_second(self) -> float | None:
        """Of the middle pod."""
        return median(self.rates.values()) if self.rates else None

    @property
    def slowest_share(self) -> float | None:
        """The slowest pod's part of the steps per second of the middle one."""
        middle = self.steps_per_second
        return min(self.rates.values()) / middle if middle and len(self.rates) > 1 else None

    @property
    def slowest_rank(self) -> int | None:
        """The one that the others wait for, where ranks train synchronously."""
        if len(self.work) < 2:
            return None
        return max(sorted(self.work), key=lambda rank: self.work[rank])

    @property
    def straggler_ratio(self) -> float | None:
        """The slowest rank's own work by that of the middle one; of two, by the other's."""
        middle = median_low(self.work.values()) if len(self.work) > 1 else 0.0
        return max(self.work.values()) / middle if middle > 0 else None

    @property
    def mean_utilisation(self) -> float | None:
        return fmean(self.utilisation) if self.utilisation else None


@dataclass(frozen=True, slots=True)
class Lowest:
    """The lowest mean of a loss in one window, and the deviation there.

    `first`, `newest`: means of those windows. `wobble`: how much the mean usually differs from that
    of the window before, which a window of few samples does not say itself.
    """

    mean: float
    deviation: float
    first: float
    newest: float
    wobble: float = 0.0


@dataclass(frozen=True, slots=True)
class Health:
    """`streaks`: for each alert how many windows in a row were bad (above 0) or good (below)."""

    num_windows: int = 0
    streaks: Mapping[str, int] = field(default_factory=dict)
    raised: tuple[str, ...] = ()
    lowest: Mapping[str, Lowest] = field(default_factory=dict)
    first_rates: tuple[float, ...] = ()
    last_rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one window says about one alert: whether it is bad, by which value and threshold."""

    alert: str
    is_bad: bool
    detail: str
    value: float
    threshold: float
    series: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An alert is raised or cleared."""

    is_raised: bool
    finding: Finding


def judge(health: Health, window: RunWindow) -> tuple[Health, tuple[Change, ...]]:
    """The health after one more window, and which alerts change."""
    health = _with_rates(health, window)
    findings = [
        finding
        for finding in (
            _diverging(health, window),
            _straggler(window),
            _low_utilisation(window),
            _slower(health),
        )
        if finding is not None and _is_finite(finding)
    ]
    changes = []
    for finding in findings:
        health, change = _count(health, finding)
        if change is not None:
            changes.append(change)
    return _with_losses(health, window), tuple(changes)


def _is_finite(finding: Finding) -> bool:
    """What a program says of itself may be any number, so that a ratio of two is none."""
    return math.isfinite(finding.value) and math.isfinite(finding.threshold)


def _count(health: Health, finding: Finding) -> tuple[Health, Change | None]:
    alert, before = finding.alert, health.streaks.get(finding.alert, 0)
    streak = max(before, 0) + 1 if finding.is_bad else min(before, 0) - 1
    health = replace(health, streaks={**health.streaks, alert: streak})
    is_raised = alert in health.raised
    if abs(streak) < WINDOWS_IN_A_ROW[alert] or is_raised == finding.is_bad:
        return health, None
    raised = (*health.raised, alert) if finding.is_bad else tuple(set(health.raised) - {alert})
    return replace(health, raised=tuple(sorted(raised))), Change(finding.is_bad, finding)


def _diverging(health: Health, window: RunWindow) -> Finding | None:
    """Of the loss that is farthest above its threshold."""
    findings = []
    for name, statistics in sorted(window.losses.items()):
        lowest = health.lowest.get(name)
        if lowest is None or not statistics.num_finite:
            continue
        threshold = _diverges_above(lowest)
        detail = f"{name} is {statistics.mean:.6g} on average, and was {lowest.mean:.6g}"
        is_bad = statistics.mean > threshold
        findings.append(Finding("diverging", is_bad, detail, statistics.mean, threshold, name))
    return max(findings, key=lambda one: one.value - one.threshold, default=None)


def _diverges_above(lowest: Lowest) -> float:
    """The lowest mean and the most of: half of it, half of what was gained, six times the noise."""
    return lowest.mean + max(
        DIVERGES_BY * abs(lowest.mean),
        DIVERGES_BY_GAINED * (lowest.first - lowest.mean),
        DIVERGES_BY_NOISE * max(lowest.deviation, lowest.wobble),
    )


def _straggler(window: RunWindow) -> Finding | None:
    ratio, rank = window.straggler_ratio, window.slowest_rank
    if ratio is None or rank is None:
        return _straggling_pod(window)
    lost_seconds = window.work[rank] * (1 - 1 / ratio)
    rate = window.steps_per_second
    costs = rate is None or lost_seconds * rate >= STRAGGLES_COSTS
    detail = (
        f"rank {rank} works {window.work[rank]:.3g} s in each step before it waits for the others,"
        f" {ratio:.3g} times as long as the middle rank"
    )
    return Finding("straggler", ratio > STRAGGLES_ABOVE and costs, detail, ratio, STRAGGLES_ABOVE)


def _straggling_pod(window: RunWindow) -> Finding | None:
    share = window.slowest_share
    if share is None:
        return None
    slowest = min(sorted(window.rates), key=lambda pod: window.rates[pod])
    detail = f"{slowest} makes {share:.0%} of the steps per second of the middle pod"
    return Finding("straggler", share < STRAGGLES_BELOW, detail, share, STRAGGLES_BELOW)


def _low_utilisation(window: RunWindow) -> Finding | None:
    mean = window.mean_utilisation
    if mean is None:
        return None
    detail = f"its devices are used {mean:.3g} % on average"
    is_bad = mean < UTILISATION_PERCENT
    return Finding("low_utilisation", is_bad, detail, mean, UTILISATION_PERCENT)


def _slower(health: Health) -> Finding | None:
    first, last = health.first_rates, health.last_rates
    if len(first) < NUM_RATES or len(last) < NUM_RATES:
        return None
    before, now = median(first), median(last)
    if before <= 0:
        return None
    noise = SLOWER_BY_ERRORS * math.hypot(_error(first), _error(last)) / before
    threshold = 1 - max(SLOWER_BY, noise)
    detail = f"it makes {now:.3g} steps per second, and made {before:.3g} at first"
    return Finding("slower", now / before < threshold, detail, now / before, threshold)


def _error(rates: tuple[float, ...]) -> float:
    """The standard error of their median, robust against single slow windows."""
    middle = median(rates)
    deviation = _DEVIATION_OF_MAD * median(abs(rate - middle) for rate in rates)
    return float(_ERROR_OF_MEDIAN * deviation / len(rates) ** 0.5)


def _with_rates(health: Health, window: RunWindow) -> Health:
    """Windows without a step (an evaluation, a stall) are not rates."""
    rate = window.steps_per_second or 0.0
    health = replace(health, num_windows=health.num_windows + 1)
    if rate <= 0 or health.num_windows <= NUM_WARM_UP:
        return health
    if len(health.first_rates) < NUM_RATES:
        return replace(health, first_rates=(*health.first_rates, rate))
    return replace(health, last_rates=(*health.last_rates, rate)[-NUM_RATES:])


def _with_losses(health: Health, window: RunWindow) -> Health:
    lowest = dict(health.lowest)
    for name, statistics in window.losses.items():
        if statistics.num_finite:
            lowest[name] = _with_loss(lowest.get(name), statistics)
    return replace(health, lowest=lowest)


def _with_loss(known: Lowest | None, now: Statistics) -> Lowest:
    """What is known of a loss after one more window. The noise is that of windows that are good."""
    if known is None:
        return Lowest(now.mean, now.deviation, first=now.mean, newest=now.mean)
    if now.mean > _diverges_above(known):
        return known
    change = abs(now.mean - known.newest)
    wobble = known.wobble + _WOBBLE_SHARE * (change - known.wobble)
    known = replace(known, newest=now.mean, wobble=wobble)
    if now.mean < known.mean:
        known = replace(known, mean=now.mean, deviation=now.deviation)
    return known
