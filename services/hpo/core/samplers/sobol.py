"""Quasi-random search: a scrambled Sobol sequence fills the space more evenly than random points.

Trial n is point n of the sequence. Where that breaks a constraint, the trial is drawn at random.
"""

import hashlib

import numpy as np
from scipy.stats import qmc

from services.hpo.core.samplers.proposing import at_random, first_new
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array, Trials

_BLOCK = 256


class Sequence:
    """The points of the sequence by index, made in blocks."""

    def __init__(self, num_dimensions: int, seed: int) -> None:
        self._num_dimensions, self._seed = num_dimensions, seed
        self._block: tuple[int, Array] | None = None

    def units(self, index: int) -> Array:
        block, place = divmod(index, _BLOCK)
        if self._block is None or self._block[0] != block:
            sequence = qmc.Sobol(self._num_dimensions, rng=_generator(self._seed), bits=30)
            if block:
                sequence.fast_forward(block * _BLOCK)
            self._block = (block, sequence.random(_BLOCK))
        row: Array = self._block[1][place]
        return row


def _generator(seed: int) -> np.random.Generator:
    """For the scrambling. Scipy spawns generators from its seed, which those of `Draws` lack."""
    digest = hashlib.sha256(f"sobol\0{seed}\0".encode() + b"0").digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))


class Sobol:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._space, self._seed = space, seed
        self._sequence = Sequence(max(len(space.dimensions), 1), seed)

    def propose(self, trials: Trials, number: int) -> Proposal:
        row = self._sequence.units(number)[: len(self._space.dimensions)]
        point = first_new(self._space, trials.units[:0], [row])
        if point is not None:
            return Proposal(point, f"point {number + 1} of a sequence that fills the space evenly")
        return at_random(self._space, self._seed, number)
