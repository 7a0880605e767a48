"""Made-up objectives, each with one difficulty, for tests and for the benchmark of samplers.

A family is a space and the loss of a point after each epoch: a pure function of the point and a
seed, which moves the optimum. The best final loss is about 0 and that of a usual point about 1.
`curve` is what `search_simulation` asks of a surrogate: the negative loss, as an accuracy.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.lcbench import EPOCHS, FLOATS
from services.hpo.core.space import Choice, Scalar, Space, Uniform, make_space

Final = Callable[[FLOATS, FLOATS], float]
# The final loss and two numbers of the point in [0, 1), to losses at parts of the whole in (0, 1].
Way = Callable[[float, float, float, FLOATS], FLOATS]


def bowl(unit: FLOATS, best: FLOATS) -> float:
    return 6.0 * float(((unit - best) ** 2).mean())


def plateau(unit: FLOATS, best: FLOATS) -> float:
    """One value in nine tenths of the space, as of accuracy at chance."""
    return min(1.0, 14.0 * math.pow(float(((unit - best) ** 2).mean()), 0.75))


def cliff(unit: FLOATS, best: FLOATS) -> float:
    """The best is just before where all is lost."""
    behind = bool(unit[0] > best[0] + 0.02)
    return 40.0 if behind else bowl(unit, best)


def outliers(unit: FLOATS, best: FLOATS) -> float:
    """Of five trials one ends anywhere far off, whatever its place."""
    return bowl(unit, best) + (20.0 + 40.0 * chance(unit, 1) if chance(unit) < 0.2 else 0.0)


def divergence(unit: FLOATS, best: FLOATS) -> float:
    """Seven of eight trials end thousands of times too large."""
    off = float(np.abs(unit[:2] - best[:2]).max())
    return bowl(unit, best) if off < 0.18 else 10.0 ** (3.0 + 3.0 * chance(unit))


def step(unit: FLOATS, best: FLOATS) -> float:
    """Nine of ten trials end at one large value."""
    return bowl(unit, best) if float(np.abs(unit[:2] - best[:2]).max()) < 0.16 else 1e4


def explosion(unit: FLOATS, best: FLOATS) -> float:
    """The loss grows by powers with the distance, to millions of times a usual one."""
    off = float(np.abs(unit[:2] - best[:2]).max())
    return bowl(unit, best) + math.expm1(25.0 * max(0.0, off - 0.12))


def no_number(unit: FLOATS, best: FLOATS) -> float:
    """Seven of eight trials end without a number."""
    return bowl(unit, best) if float(np.abs(unit[:2] - best[:2]).max()) < 0.18 else math.nan


def ridge(unit: FLOATS, best: FLOATS) -> float:
    """A narrow bent valley, nearly flat along its way."""
    x, y = float(unit[0] - best[0]), float(unit[1] - best[1])
    return 12.0 * (y - x * x + 0.3 * x) ** 2 + 0.6 * x * x


def two_valleys(unit: FLOATS, best: FLOATS) -> float:
    """A wide valley whose bottom is a third of the way up, and a narrow one."""
    off = float(np.abs(unit - best).max())
    wide = 0.35 + 4.0 * float(((unit - (best + 0.5) % 1.0) ** 2).mean())
    return min(wide, 400.0 * off * off)


def telling(end: float, speed: float, noise: float, parts: FLOATS) -> FLOATS:
    wave = 0.1 * np.sin(9.0 * noise + 40.0 * parts)
    return end + (1.5 + wave) * np.exp(-5.0 * parts) * (1.0 - parts)


def half_telling(end: float, speed: float, noise: float, parts: FLOATS) -> FLOATS:
    return end + 1.2 * (noise - 0.5) * (1.0 - parts) + 1.5 * np.exp(-(2.0 + 4.0 * speed) * parts)


def crossing(end: float, speed: float, noise: float, parts: FLOATS) -> FLOATS:
    """What is bad in the end is quick in the beginning."""
    pace = 2.0 + 10.0 * min(end, 1.5)
    falls: FLOATS = end + (3.0 - end) * (np.exp(-pace * parts) - np.exp(-pace)) + 0.1 * noise
    return falls


def late(end: float, speed: float, noise: float, parts: FLOATS) -> FLOATS:
    """Exactly at chance until a point after the middle."""
    begins = 0.4 + 0.3 * speed
    return np.where(parts < begins, 3.0, 3.0 + (end - 3.0) * (parts - begins) / (1.0 - begins))


def ties(end: float, speed: float, noise: float, parts: FLOATS) -> FLOATS:
    """Measured so coarsely that most values are equal before the end."""
    way = end + 1.5 * np.exp(-5.0 * parts)
    return np.where(parts < 1.0, np.round(way), end)


def noise(end: float, speed: float, noise: float, parts: FLOATS) -> FLOATS:
    """What is measured before the last part says nothing about the end."""
    return np.where(parts < 0.9, 3.0 * noise + 2.0 * np.exp(-3.0 * parts), end)


@dataclass(frozen=True, slots=True)
class Family:
    final: Final
    num: int
    way: Way = telling
    num_choices: int = 0
    epochs: int = EPOCHS

    @property
    def space(self) -> Space:
        choices = {f"c{place}": Choice((0, 1, 2)) for place in range(self.num_choices)}
        return make_space({**{f"x{i}": Uniform(0.0, 1.0) for i in range(self.num)}, **choices})

    def loss(self, point: Mapping[str, Scalar], seed: int) -> float:
        unit = np.array([float(point[f"x{place}"]) for place in range(self.num)])
        best = np.array([0.15 + 0.7 * chance(seed, place) for place in range(self.num)])
        wrong = (
            float(point[f"c{place}"]) != seed * (place + 1) % 3 for place in range(self.num_choices)
        )
        return self.final(unit, best) + 0.4 * sum(wrong)

    def curve(self, seed: str, point: Mapping[str, Scalar]) -> tuple[FLOATS, FLOATS]:
        """Accuracies and seconds at the end of each epoch."""
        parts = np.arange(1, EPOCHS + 1) / EPOCHS
        place = tuple(sorted(point.items()))
        losses = self.way(self.loss(point, int(seed)), chance(place), chance(place, 1), parts)
        return -losses, np.arange(1.0, EPOCHS + 1) * (0.8 + 0.4 * chance(place, 2))


SURFACES: Mapping[str, Family] = {
    "bowl": Family(bowl, 6),
    "choices": Family(bowl, 3, num_choices=3),
    "plateau": Family(plateau, 3),
    "cliff": Family(cliff, 3),
    "outliers": Family(outliers, 4),
    "divergence": Family(divergence, 4),
    "step": Family(step, 4),
    "explosion": Family(explosion, 4),
    "no number": Family(no_number, 4),
    "ridge": Family(ridge, 2),
    "one parameter": Family(two_valleys, 1),
}
CURVES: Mapping[str, Family] = {
    way.__name__: Family(bowl, 4, way)
    for way in (telling, half_telling, crossing, late, ties, noise)
}


def chance(*what: object) -> float:
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
