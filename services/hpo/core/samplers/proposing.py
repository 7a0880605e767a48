"""What the samplers share: random bits by counter, and the step from units to a point to try."""

import hashlib
from collections.abc import Iterable

import numpy as np

from services.hpo.core.samplers import random
from services.hpo.core.space import Point, Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array

# Of ranked candidates: so many are looked at before a random point is taken.
_MAX_LOOKED_AT = 100


def generator(purpose: str, seed: int, number: int) -> np.random.Generator:
    """Random numbers that depend on these three alone."""
    digest = hashlib.sha256(f"{purpose}\0{seed}\0{number}".encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))


def first_new(space: Space, tried: Array, ranked: Iterable[Array]) -> Point | None:
    """The first of these rows of units that is feasible and was not tried yet."""
    seen = np.nan_to_num(tried, nan=-1.0)
    for looked_at, row in enumerate(ranked):
        if looked_at == _MAX_LOOKED_AT:
            break
        point = space.decode(row)
        if not space.satisfies(point):
            continue
        exact = np.nan_to_num(space.encode(point), nan=-1.0)
        if not len(seen) or not (seen == exact).all(axis=1).any():
            return point
    return None


def at_random(space: Space, seed: int, number: int) -> Proposal:
    """What is proposed where a strategy finds no new feasible point."""
    return Proposal(random.propose(space, seed, number), "drawn at random: no new point was found")
