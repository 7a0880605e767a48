"""How much of what trials achieved goes with each hyperparameter.

In: finished trials, each a point and a value. Out: per hyperparameter the share of the variance of
the trials' ranks that is explained by which bin its value is in: epsilon squared of the
Kruskal-Wallis test, at least 0. Ranks, because one diverged trial must not decide; bins of equal
counts, at most ten, one per value of a choice; corrected for the number of bins, so that a
hyperparameter without effect has about 0. Effects of two hyperparameters together are not seen:
it is a measure of each alone. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Scalar = bool | int | float | str
Point = Mapping[str, Scalar]

MIN_TRIALS = 10
MAX_BINS = 10
MIN_PER_BIN = 4


@dataclass(frozen=True, slots=True)
class Importance:
    """`share` is from 0 to 1; `num_trials` had the hyperparameter (it may be conditional)."""

    name: str
    share: float
    num_trials: int


def importances(points: Sequence[Point], values: Sequence[float]) -> list[Importance]:
    """The most important first; empty below `MIN_TRIALS` trials."""
    if len(points) < MIN_TRIALS:
        return []
    names = sorted({name for point in points for name in point})
    found = []
    for name in names:
        having = [
            (point[name], value)
            for point, value in zip(points, values, strict=True)
            if name in point
        ]
        if len(having) >= MIN_TRIALS:
            labels = _bins([given for given, _ in having])
            share = _explained(labels, _ranks([value for _, value in having]))
            found.append(Importance(name, share, len(having)))
    return sorted(found, key=lambda one: (-one.share, one.name))


def _bins(given: Sequence[Scalar]) -> list[int]:
    """The bin of each: equal values are in one, and numbers in order."""
    if any(isinstance(one, str | bool) for one in given):
        kinds = {text: at for at, text in enumerate(sorted({str(one) for one in given}))}
        return [kinds[str(one)] for one in given]
    num_bins = max(2, min(MAX_BINS, len(given) // MIN_PER_BIN))
    if len(set(given)) <= num_bins:
        at_value = {value: at for at, value in enumerate(sorted(set(given)))}
        return [at_value[one] for one in given]
    return [int((rank - 0.5) * num_bins / len(given)) for rank in _ranks(given)]


def _ranks(values: Sequence[Scalar]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    ranks = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for at in order[begin:end]:
            ranks[at] = (begin + 1 + end) / 2
        begin = end
    return ranks


def _explained(labels: Sequence[int], ranks: Sequence[float]) -> float:
    num, num_bins = len(ranks), len(set(labels))
    mean = sum(ranks) / num
    total = sum((rank - mean) ** 2 for rank in ranks)
    if total == 0 or num_bins in (1, num):
        return 0.0
    by_bin: dict[int, list[float]] = {}
    for label, rank in zip(labels, ranks, strict=True):
        by_bin.setdefault(label, []).append(rank)
    between = sum(len(of) * (sum(of) / len(of) - mean) ** 2 for of in by_bin.values())
    by_chance = (num_bins - 1) * (total - between) / (num - num_bins)
    return max(0.0, (between - by_chance) / total)
