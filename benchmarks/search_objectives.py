"""Small objectives: `auto` against Optuna, and its pruner against none.

The made-up ones of `search_families` and the real models of `search_real`. Regret is 0 for the best
loss there is, of a real model for the best that any run found, and 1 for that of a usual point or
worse. Part of `search_quality`, which prints and records what this finds.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import product

import numpy as np

from benchmarks import search_families, search_real
from benchmarks.lcbench import FLOATS
from benchmarks.report import Row
from benchmarks.search_families import Family
from benchmarks.search_peers import OptunaSearcher
from benchmarks.search_real import RealModel
from benchmarks.search_simulation import Ours, Searcher, search
from services.hpo.core.pruners.auto import Auto, steps_of_auto

NUM_TRIALS = 100
# What a pruner may spend, in whole trials.
NUM_WHOLE = 20
# Random points of a real model, whose median is a usual loss.
NUM_USUAL = 60
# Optuna's Gaussian process takes about a minute a run.
FOR_GP = ("bowl", "plateau", "divergence")
EARLY, BY_DESIGN = "telling", "crossing"
# Added to both regrets of a ratio: below it, neither matters.
LEAST = 0.01
SURFACES: Mapping[str, Family | RealModel] = {**search_families.SURFACES, **search_real.SURFACES}
CURVES: Mapping[str, Family | RealModel] = {**search_families.CURVES, **search_real.CURVES}
OBJECTIVES = {**SURFACES, **CURVES}
MADE_UP = {**search_families.SURFACES, **search_families.CURVES}

Means = Mapping[str, float]
# The best loss of each run, by objective.
Losses = Mapping[str, FLOATS]


def rows(pool: Executor, *, quick: bool) -> list[Row]:
    """Run all of them; a few of each kind when quick."""
    seeds = range(1) if quick else range(10)
    surfaces = ("bowl", "SVM, cancer") if quick else tuple(SURFACES)
    curves = (EARLY, BY_DESIGN, "boosted regression, diabetes") if quick else tuple(CURVES)
    names = (*surfaces, *curves)
    usual = dict(zip(names, pool.map(_usual, names), strict=True))
    by_sampler = {
        "auto": _losses(pool, partial(_ours, "auto"), surfaces, seeds),
        "TPE": _losses(pool, partial(_optuna, "TPE"), surfaces, seeds),
        "GP": {} if quick else _losses(pool, partial(_optuna, "GP"), FOR_GP, range(1)),
    }
    auto, tpe, gp = _regrets(tuple(by_sampler.values()), usual)
    by_pruner = [_losses(pool, partial(_pruned, how), curves, seeds) for how in (True, False)]
    pruned, whole = _regrets(by_pruner, usual)
    for name, found in {"auto": auto, "TPE": tpe, "GP": gp, "pruned": pruned, "not": whole}.items():
        print(f"{name}: " + ", ".join(f"{family} {mean:.3f}" for family, mean in found.items()))
    return [*_of_sampler(auto, tpe, gp), *_of_pruner(pruned, whole)]


def _of_sampler(auto: Means, tpe: Means, gp: Means) -> list[Row]:
    ours, peer = _mean(auto), _mean(tpe)
    ratios = {name: (auto[name] + LEAST) / (tpe[name] + LEAST) for name in auto}
    worst = max(ratios, key=lambda name: ratios[name])
    few = {name: auto[name] for name in gp}
    on_few = f"; GP {_mean(gp):.3f}, auto {_mean(few):.3f} on {len(gp)}" if gp else ""
    return [
        Row(
            id="search_quality.families",
            what=f"mean regret at {NUM_TRIALS} trials, auto, {len(auto)} objectives",
            ours=f"{ours:.3f}",
            peer=f"{peer:.3f} (TPE{on_few})",
            ratio=ours / peer,
            target="at most 0.7",
            met=ours <= 0.7 * peer,
        ),
        Row(
            id="search_quality.worst_family",
            what=f"what suits auto least, {worst}; the ratio with {LEAST} added to both",
            ours=f"{auto[worst]:.3f}",
            peer=f"{tpe[worst]:.3f} (TPE)",
            ratio=ratios[worst],
            target="at most 1.1",
            met=ratios[worst] <= 1.1,
        ),
    ]


def _of_pruner(pruned: Means, whole: Means) -> list[Row]:
    more = {name: pruned[name] - whole[name] for name in pruned if name != BY_DESIGN}
    worst = max(more, key=lambda name: more[name])
    budget = f"mean regret in the steps of {NUM_WHOLE} whole trials, pruner auto"

    def row(end: str, what: str, ours: float, none: float, most: float) -> Row:
        return Row(
            id=f"search_quality.{end}",
            what=f"{budget}, {what}",
            ours=f"{ours:.3f}",
            peer=f"{none:.3f} (no pruner)",
            ratio=ours / none,
            target=f"at most {most:g}",
            met=ours <= most * none,
        )

    def difference(end: str, what: str, name: str, most: float) -> Row:
        return Row(
            id=f"search_quality.{end}",
            what=f"{budget}, {what}",
            ours=f"{pruned[name]:.3f}",
            peer=f"{whole[name]:.3f} (no pruner)",
            ratio=None,
            target=f"at most {most:g} more",
            met=pruned[name] - whole[name] <= most,
        )

    return [
        row("pruner", f"{len(pruned)} objectives", _mean(pruned), _mean(whole), 0.9),
        row("pruner_early", "where order shows early", pruned[EARLY], whole[EARLY], 0.5),
        difference("pruner_worst", f"the worst other objective, {worst}", worst, 0.05),
        difference("pruner_crossing", "where curves cross", BY_DESIGN, 0.15),
    ]


def _mean(found: Means) -> float:
    return float(np.mean(list(found.values())))


def _losses(
    pool: Executor, run: Callable[[str, int], float], names: Sequence[str], seeds: Sequence[int]
) -> Losses:
    found = pool.map(run, *zip(*product(names, seeds), strict=True))
    return dict(zip(names, np.array(list(found)).reshape(len(names), -1), strict=True))


def _regrets(found: Collection[Losses], usual: Means) -> list[Means]:
    """Mean regrets, of each kind of run."""
    best = {
        name: 0.0 if name in MADE_UP else min(runs[name].min() for runs in found if name in runs)
        for name in set().union(*found)
    }
    return [
        {
            name: float(np.clip((losses - best[name]) / (usual[name] - best[name]), 0, 1).mean())
            for name, losses in runs.items()
        }
        for runs in found
    ]


def _usual(name: str) -> float:
    """The loss of a usual point."""
    if name in MADE_UP:
        return 1.0
    found = _complete(name, 0, Ours("random", 4711, space=OBJECTIVES[name].space), NUM_USUAL)
    return float(np.median(found))


def _ours(sampler: str, name: str, seed: int) -> float:
    return _best(name, seed, Ours(sampler, seed, space=OBJECTIVES[name].space), NUM_TRIALS)


def _optuna(sampler: str, name: str, seed: int) -> float:
    return _best(name, seed, OptunaSearcher(sampler, seed, OBJECTIVES[name].space), NUM_TRIALS)


def _pruned(is_pruned: bool, name: str, seed: int) -> float:
    objective = OBJECTIVES[name]
    pruner = Auto(steps_of_auto(objective.epochs), objective.epochs) if is_pruned else None
    return _best(name, seed, Ours("auto", seed, space=objective.space, pruner=pruner), NUM_WHOLE)


def _best(name: str, seed: int, searcher: Searcher, num_whole: int) -> float:
    return min(_complete(name, seed, searcher, num_whole), default=float("inf"))


def _complete(name: str, seed: int, searcher: Searcher, num_whole: int) -> list[float]:
    """The losses of the complete trials, in the steps of so many whole ones."""
    objective = OBJECTIVES[name]
    found = search(objective, str(seed), searcher, num_whole * objective.epochs)
    return [-one.accuracy for one in found if one.accuracy == one.accuracy]
