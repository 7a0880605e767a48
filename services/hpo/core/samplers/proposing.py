"""What samplers share: random numbers by counter, the best losses, from units to a new point."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.samplers import random
from services.hpo.core.space import Point, Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array

# Of ranked candidates: so many are looked at before a random point is taken.
_MAX_LOOKED_AT = 100


class Draws:
    """Random numbers that depend on a purpose, a seed and a trial's number alone."""

    def __init__(self, purpose: str, seed: int) -> None:
        digest = hashlib.sha256(f"{purpose}\0{seed}".encode()).digest()
        self._key = np.frombuffer(digest, "<u8", 2)
        # Made once: a new generator takes longer than the numbers that are drawn from it.
        self._bits = np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)

    def of(self, number: int) -> np.random.Generator:
        """The generator at the start of this trial's numbers. Valid until the next call."""
        counter = np.array([0, 0, 0, number], np.uint64)
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": self._key},
            "buffer": np.zeros(4, np.uint64),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator


def is_among_best(losses: Array, num: int) -> NDArray[np.bool_]:
    """The `num` smallest losses, of equal ones the first: a stable sort, in less time."""
    last = np.partition(losses, num - 1)[num - 1]
    is_best: NDArray[np.bool_] = losses <= last
    if (too_many := np.count_nonzero(is_best) - num) > 0:
        is_best[np.flatnonzero(losses == last)[-too_many:]] = False
    return is_best


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
