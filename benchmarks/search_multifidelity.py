"""What stopping early is worth: LCBench's surrogate, a fifth of the epochs of 100 full trials.

`auto` with its pruner has 1,040 epochs, Optuna's TPE 5,200; only trials that finished all 52 epochs
count. For comparison, Optuna's TPE with its HyperbandPruner, `auto` without a pruner, and random
search with it, have 1,040 as well.
"""

from functools import partial

import numpy as np

from benchmarks.lcbench import EPOCHS, surrogate
from benchmarks.report import Row, options, publish
from benchmarks.search_peers import HyperbandSearcher
from benchmarks.search_quality import NUM_TRIALS, SEEDS, optunas, regrets, run_optuna, workers
from benchmarks.search_simulation import Ours, search
from services.hpo.core.pruners.auto import Auto, steps_of_auto

TITLE = "What stopping early is worth"
MEASURES = (
    "services/hpo/core/final_losses.py",
    "services/hpo/core/gaussian_process.py",
    "services/hpo/core/inputs.py",
    "services/hpo/core/objectives.py",
    "services/hpo/core/pruners",
    "services/hpo/core/samplers",
    "services/hpo/core/space.py",
    "services/hpo/core/trials.py",
)
NOTES = """
The same surrogate and scale, with a fifth of the epochs that 100 full trials take. Only trials
that finished all 52 epochs count.
"""

NUM_EPOCHS = NUM_TRIALS * EPOCHS // 5


def main() -> None:
    chosen = options("search_multifidelity", __doc__ or "")
    seeds = SEEDS[:1] if chosen.quick else SEEDS
    tasks = surrogate().tasks[:2] if chosen.quick else surrogate().tasks
    runs = [(task, seed) for task in tasks for seed in seeds]
    with workers() as pool:
        ours, bare, random = (
            np.array(list(pool.map(_regret, *zip(*[(*run, *how) for run in runs], strict=True))))
            for how in (("auto", True), ("auto", False), ("random", True))
        )
        tpe, hyperband = (
            np.array(list(pool.map(peer, *zip(*runs, strict=True))))
            for peer in (_regret_of_tpe, _regret_of_hyperband)
        )
    for name, found in {
        f"auto with its pruner, {NUM_EPOCHS} epochs": ours,
        f"auto without a pruner, {NUM_EPOCHS} epochs": bare,
        f"random with the pruner auto, {NUM_EPOCHS} epochs": random,
        f"Optuna TPE, {NUM_TRIALS * EPOCHS} epochs": tpe,
        f"Optuna TPE with its HyperbandPruner, {NUM_EPOCHS} epochs": hyperband,
    }.items():
        print(f"{name}: mean regret {found.mean():.3f}, median {np.median(found):.3f}")
    publish(
        [
            Row(
                id="search_multifidelity.auto",
                what=f"mean regret after {NUM_EPOCHS} epochs, auto with its pruner",
                ours=f"{ours.mean():.3f}",
                peer=f"{tpe.mean():.3f} (TPE, {NUM_TRIALS * EPOCHS} epochs)",
                ratio=float(ours.mean() / tpe.mean()),
                target="at most 1",
                met=bool(ours.mean() <= tpe.mean()),
            ),
            Row(
                id="search_multifidelity.hyperband",
                what=f"mean regret after {NUM_EPOCHS} epochs, auto with its pruner",
                ours=f"{ours.mean():.3f}",
                peer=f"{hyperband.mean():.3f} (TPE with HyperbandPruner, {NUM_EPOCHS} epochs)",
                ratio=float(ours.mean() / hyperband.mean()),
                target="at most 1",
                met=bool(ours.mean() <= hyperband.mean()),
            ),
        ],
        chosen,
        ("optuna", "numpy", "scipy"),
    )


def _regret(task: str, seed: int, sampler: str, is_pruned: bool) -> float:
    pruner = Auto(steps_of_auto(EPOCHS), EPOCHS) if is_pruned else None
    searcher = Ours(sampler, seed, pruner=pruner)
    finished = search(surrogate(), task, searcher, NUM_EPOCHS)
    return _last(task, [trial.accuracy for trial in finished])


def _regret_of_tpe(task: str, seed: int) -> float:
    return float(run_optuna("TPE", task, seed)[-1])


def _regret_of_hyperband(task: str, seed: int) -> float:
    name = f"TPE-hyperband-ending-{NUM_EPOCHS}-{task}-{seed}"
    searcher = partial(HyperbandSearcher, "TPE", seed)
    return _last(task, optunas(name, task, searcher, NUM_EPOCHS))


def _last(task: str, accuracies: list[float]) -> float:
    """Regret of the best; 1, that of the median random configuration, where no trial finished."""
    return float(regrets(task, accuracies)[-1]) if accuracies else 1.0


if __name__ == "__main__":
    main()
