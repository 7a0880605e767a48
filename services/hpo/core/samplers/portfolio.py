"""What to try first, from earlier studies: few points of which one is good wherever one looks.

Each earlier study becomes a Gaussian process of its losses, scaled so that 0 is its best one and 1
the median. The candidates are the best points of all studies. Points are chosen greedily: each
time the one that lowers most the mean over the studies of the best scaled loss so far.
"""

from collections.abc import Sequence

import numpy as np

from services.hpo.core.gaussian_process import Features, Posterior, fit
from services.hpo.core.samplers.improvement import known
from services.hpo.core.trials import Array, EarlierStudy

# Bounds on time: of the earlier studies the last ones, and of each the best and the latest trials.
MAX_STUDIES = 64
_MAX_TRIALS = 80
_MAX_ROUNDS = 12
_FEWEST_TRIALS = 8
_NUM_BEST = 4


def portfolio(features: Features, earlier: Sequence[EarlierStudy], size: int) -> Array:
    """(at most size, d) units, in the order in which they should be tried."""
    studies = [
        study
        for study in earlier[-MAX_STUDIES:]
        if np.isfinite(study.losses).sum() >= _FEWEST_TRIALS
    ]
    if not studies:
        return np.empty((0, features.num_dimensions))
    candidates = np.vstack(
        [study.units[np.argsort(study.losses, kind="stable")[:_NUM_BEST]] for study in studies]
    )
    expected = np.array([_scaled(features, study, candidates) for study in studies])
    best = np.ones(len(studies))
    chosen: list[int] = []
    for _ in range(min(size, len(candidates))):
        means = np.minimum(expected, best[:, None]).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(np.argmin(means)))
        best = np.minimum(best, expected[:, chosen[-1]])
    return candidates[chosen]


def _scaled(features: Features, study: EarlierStudy, candidates: Array) -> Array:
    """(m,) scaled losses that the study's process expects at the candidates."""
    learned = known(study.losses, _MAX_TRIALS)
    observed = features.of_units(study.units[learned.used])
    parameters = fit(features, observed, learned.values, _MAX_ROUNDS)
    process = Posterior(features, parameters, observed, learned.values)
    low, middle = float(learned.values.min()), float(np.median(learned.values))
    span = middle - low if middle > low else 1.0
    return np.clip((process.mean(features.of_units(candidates)) - low) / span, 0.0, 1.0)
