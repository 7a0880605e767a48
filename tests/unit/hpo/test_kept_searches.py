"""Searches in memory: as many as their trials leave room for."""

from types import SimpleNamespace
from typing import Any

from services.hpo.searches import Kept, Loaded


def of(num_trials: int) -> Loaded:
    search: Any = SimpleNamespace(trials=range(num_trials))
    return Loaded(Any, search)


def test_the_searches_used_last_stay_as_long_as_their_trials_fit() -> None:
    kept = Kept()
    small = [of(10) for _ in range(200)]
    for place, one in enumerate(small):
        kept.put(f"small-{place}", "now", one)
    assert len(kept) == 200, "many short studies stay"
    kept.put("long", "now", of(90_000))
    assert kept.take("small-0", "now") is None
    assert kept.take("small-199", "now") is small[199]
    for name in ("long", "longer"):
        kept.put(name, "now", of(200_000))
    assert len(kept) == 1, "one that does not fit stays alone"
    assert kept.take("longer", "before") is None, "it has gone further"
    assert len(kept) == 0
