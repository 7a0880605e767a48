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
    for looked_at, row in enumerate(ranked):
        if looked_at == _MAX_LOOKED_AT:
            break
        point = space.decode(row)
        if not space.satisfies(point):
            continue
        if not _is_among(tried, space.encode(point)):
            return point
    return None


def _is_among(rows: Array, row: Array) -> bool:
    """Whether it is one of the rows; NaN equals NaN. Few rows are left after the first columns."""
    left = np.arange(len(rows))
    for column, unit in enumerate(row):
        if not len(left):
            return False
        there = rows[left, column]
        left = left[np.isnan(there) if np.isnan(unit) else there == unit]
    return len(left) > 0


def at_random(space: Space, seed: int, number: int) -> Proposal:
    """What is proposed where a strategy finds no new feasible point."""
    return Proposal(random.propose(space, seed, number), "drawn at random: no new point was found")
