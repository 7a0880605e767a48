"""Random search: every parameter of every trial is drawn independently.

The draw is counter-based: the bits are SHA-256 of (seed, trial number, parameter name). So it
depends on no generator state, no hash seed and no order of the space's mapping, a parameter that is
added changes no other's values, and two studies with one seed try the same points. Points are drawn
with replacement: unlike the grid sampler it repeats points of a small space.
"""

import hashlib

from services.hpo.core.space import Point, Space, draw


def num_points(space: Space, limit: int) -> int:
    """Random search never runs out of points."""
    return limit


def propose(space: Space, seed: int, number: int) -> Point:
    return {name: draw(parameter, _bits(seed, number, name)) for name, parameter in space}


def _bits(seed: int, number: int, name: str) -> int:
    digest = hashlib.sha256(f"random\0{seed}\0{number}\0{name}".encode()).digest()
    return int.from_bytes(digest, "big")
