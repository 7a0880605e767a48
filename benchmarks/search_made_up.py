"""The made-up objectives of `search_families`: `auto` against Optuna, and its pruner against none.

Regret is the best loss found, 0 being the best there is and 1 that of a usual point or worse. Part
of `search_quality`, which prints and records what this finds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import product

import numpy as np

from benchmarks.lcbench import EPOCHS, FLOATS
from benchmarks.report import Row
from benchmarks.search_families import CURVES, SURFACES
from benchmarks.search_peers import OptunaSearcher
from benchmarks.search_simulation import Finished, Ours, search
from services.hpo.core.pruners.auto import Auto, steps_of_auto

NUM_TRIALS = 100
# What a pruner may spend, in whole trials.
NUM_WHOLE = 20
# Optuna's Gaussian process takes about a minute a run.
FOR_GP = ("bowl", "plateau", "divergence")
EARLY, BY_DESIGN = "telling", "crossing"
# Added to both regrets of a ratio: below it, neither matters.
LEAST = 0.01

Means = Mapping[str, float]


def rows(pool: Executor, *, quick: bool) -> list[Row]:
    """Run all of them; a few of each kind when quick."""
    seeds = range(1) if quick else range(10)
    surfaces = ("bowl", "divergence") if quick else tuple(SURFACES)
    curves = (EARLY, BY_DESIGN) if quick else tuple(CURVES)
    auto, tpe = (
        _means(pool, run, surfaces, seeds)
        for run in (partial(_ours, "auto"), partial(_optuna, "TPE"))
    )
    gp = {} if quick else _means(pool, partial(_optuna, "GP"), FOR_GP, range(1))
    pruned, whole = (_means(pool, partial(_pruned, how), curves, seeds) for how in (True, False))
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
            what=f"mean regret at {NUM_TRIALS} trials, auto, {len(auto)} made-up families",
            ours=f"{ours:.3f}",
            peer=f"{peer:.3f} (TPE{on_few})",
            ratio=ours / peer,
            target="at most 0.7",
            met=ours <= 0.7 * peer,
        ),
        Row(
            id="search_quality.worst_family",
            what=f"the family that suits auto least, {worst}; the ratio with {LEAST} added to both",
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
        row("pruner", f"{len(pruned)} families", _mean(pruned), _mean(whole), 0.9),
        row("pruner_early", "where order shows early", pruned[EARLY], whole[EARLY], 0.5),
        difference("pruner_worst", f"the worst other family, {worst}", worst, 0.05),
        difference("pruner_crossing", "where curves cross", BY_DESIGN, 0.15),
    ]


def _mean(found: Means) -> float:
    return float(np.mean(list(found.values())))


def _means(
    pool: Executor, run: Callable[[str, int], float], names: Sequence[str], seeds: Sequence[int]
) -> Means:
    found = pool.map(run, *zip(*product(names, seeds), strict=True))
    means: FLOATS = np.array(list(found)).reshape(len(names), -1).mean(axis=1)
    return dict(zip(names, map(float, means), strict=True))


def _ours(sampler: str, name: str, seed: int) -> float:
    family = SURFACES[name]
    searcher = Ours(sampler, seed, space=family.space)
    return _regret(search(family, str(seed), searcher, NUM_TRIALS * EPOCHS))


def _optuna(sampler: str, name: str, seed: int) -> float:
    family = SURFACES[name]
    searcher = OptunaSearcher(sampler, seed, family.space)
    return _regret(search(family, str(seed), searcher, NUM_TRIALS * EPOCHS))


def _pruned(is_pruned: bool, name: str, seed: int) -> float:
    family = CURVES[name]
    pruner = Auto(steps_of_auto(EPOCHS), EPOCHS) if is_pruned else None
    searcher = Ours("auto", seed, space=family.space, pruner=pruner)
    return _regret(search(family, str(seed), searcher, NUM_WHOLE * EPOCHS))


def _regret(finished: Iterable[Finished]) -> float:
    losses = [-one.accuracy for one in finished if one.accuracy == one.accuracy]
    return min(max(min(losses, default=1.0), 0.0), 1.0)
