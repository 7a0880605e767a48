"""Which of the many metrics of a checkpoint a line shows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

NUM_SHOWN = 3
_LOSS = re.compile(r"(^|[^a-z])loss($|[^a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Few:
    """Names with their values, and how many more there are."""

    shown: tuple[tuple[str, float], ...]
    num_more: int


def few(metrics: Mapping[str, float], judged: str | None) -> Few:
    """The judged metric, then losses, then the rest by name; those of groups ("layer/3") last: the
    order of the charts."""

    def rank(name: str) -> int:
        if name == judged:
            return 0
        if _LOSS.search(name):
            return 1 if name == "loss" else 2
        return 4 if "/" in name else 3

    names = sorted(metrics, key=lambda name: (rank(name), name))[:NUM_SHOWN]
    return Few(tuple((name, metrics[name]) for name in names), len(metrics) - len(names))
