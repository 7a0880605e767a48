"""A Gaussian process over the units of a space: fit, posterior, expected improvement.

The kernel is Matern 5/2 with one length scale per dimension. Its parameters are logarithms, in one
vector: d length scales, then the amplitude, then the variance of the noise. They are the most
probable ones under a wide prior (maximum a posteriori), so few observations suffice.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize
from scipy.special import ndtr

from services.hpo.core.space import Space

Array = NDArray[np.float64]

_ROOT5 = math.sqrt(5.0)
_JITTER = 1e-8
_MIN_DEVIATION = 1e-6
# Logarithms of the bounds of length scales, amplitude and noise.
_LENGTHS, _AMPLITUDE, _NOISE = (-4.0, 4.0), (-3.0, 3.0), (-14.0, 0.0)


@dataclass(frozen=True)
class Features:
    """How rows of units become rows between which a distance has a meaning.

    A choice of k values becomes k columns: all its values are equally far from each other. An
    inactive parameter is in the middle of its range, or none of its values.
    """

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, space: Space) -> "Features":
        return cls(tuple(each.num_choices for each in space.dimensions))

    @property
    def num_dimensions(self) -> int:
        return len(self.sizes)

    @cached_property
    def dimension_of(self) -> NDArray[np.intp]:
        """The dimension of each column."""
        return np.repeat(np.arange(len(self.sizes)), [max(size, 1) for size in self.sizes])

    def of_units(self, units: Array) -> Array:
        """(n, d) units to (n, c) features."""
        if not any(self.sizes):
            return np.where(np.isnan(units), 0.5, units)
        columns: list[Array] = []
        for column, size in zip(units.T, self.sizes, strict=True):
            if size:
                middles = (np.arange(size) + 0.5) / size
                columns.append(
                    np.where(np.abs(column[:, None] - middles) < 0.5 / size, math.sqrt(0.5), 0.0)
                )
            else:
                columns.append(np.where(np.isnan(column), 0.5, column)[:, None])
        return np.hstack(columns)

    def squares(self, features: Array) -> Array:
        """(d, n * n): squared distances of all pairs in each dimension."""
        columns = np.ascontiguousarray(features.T)
        per_column = columns[:, :, None] - columns[:, None, :]
        np.square(per_column, out=per_column)
        if any(self.sizes):
            starts = np.flatnonzero(np.diff(self.dimension_of, prepend=-1))
            per_column = np.add.reduceat(per_column, starts, axis=0)
        return per_column.reshape(len(self.sizes), -1)


@dataclass(frozen=True, slots=True)
class Prior:
    """Of the logarithms: mean and standard deviation, each (d + 2,)."""

    mean: Array
    deviation: Array


def prior(num_dimensions: int) -> Prior:
    """For standardized values: length scales around 1, amplitude 1, little noise."""
    return Prior(
        np.array([0.0] * num_dimensions + [0.0, -8.0]),
        np.array([1.0] * num_dimensions + [0.5, 2.0]),
    )


def bounds(num_dimensions: int) -> list[tuple[float, float]]:
    return [_LENGTHS] * num_dimensions + [_AMPLITUDE, _NOISE]


def negative_log_posterior(
    parameters: Array, squares: Array, values: Array, belief: Prior
) -> tuple[float, Array]:
    """Up to a constant, and its gradient. `squares` (d, n * n), `values` (n,)."""
    num, num_dimensions = len(values), len(parameters) - 2
    scales = np.exp(-2.0 * parameters[:num_dimensions])
    amplitude, noise = math.exp(parameters[-2]), math.exp(parameters[-1])
    distance = np.sqrt(scales @ squares)
    scaled = _ROOT5 * distance
    decay = np.exp(-scaled)
    correlation = (1.0 + scaled + scaled * scaled / 3.0) * decay
    matrix = (amplitude * correlation).reshape(num, num)
    matrix.flat[:: num + 1] += noise + _JITTER
    factor, info = lapack.dpotrf(matrix.T, lower=1)
    if info:
        return 1e10, np.zeros_like(parameters)
    weights, _ = lapack.dpotrs(factor, values, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1)  # above the diagonal all of these are 0
    inverse = inverse + inverse.T
    inverse.flat[:: num + 1] *= 0.5
    sensitivity = (np.outer(weights, weights) - inverse).ravel()
    slopes = sensitivity * decay
    slopes *= 1.0 + scaled
    gradient = np.empty_like(parameters)
    gradient[:num_dimensions] = (-0.5 * amplitude * 5.0 / 3.0) * (squares @ slopes) * scales
    gradient[-2] = -0.5 * amplitude * (sensitivity @ correlation)
    gradient[-1] = -0.5 * noise * sensitivity[:: num + 1].sum()
    log_determinant = 2.0 * np.log(factor.flat[:: num + 1]).sum()
    off = (parameters - belief.mean) / belief.deviation
    cost = 0.5 * (values @ weights) + 0.5 * log_determinant + 0.5 * (off @ off)
    return float(cost), gradient + off / belief.deviation


def fit(features: Features, observed: Array, values: Array, max_rounds: int) -> Array:
    """The most probable parameters for `values` (n,) at features (n, c)."""
    belief = prior(features.num_dimensions)
    found = minimize(
        negative_log_posterior,
        belief.mean,
        args=(features.squares(observed), values, belief),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds(features.num_dimensions),
        options={"maxiter": max_rounds},
    )
    parameters: Array = found.x
    return parameters


class _Scaled:
    """Features in units of the length scales, and the squares of their norms."""

    def __init__(self, features: Array, scales: Array) -> None:
        self.rows = features * scales
        self.norms = np.einsum("ij,ij->i", self.rows, self.rows)


def _covariance(left: _Scaled, right: _Scaled, amplitude: float) -> Array:
    """The covariances of two sets of features, (n, m)."""
    squares = (-2.0 * left.rows) @ right.rows.T
    squares += left.norms[:, None]
    squares += right.norms
    np.maximum(squares, 0.0, out=squares)
    scaled = np.sqrt(squares, out=squares)
    scaled *= _ROOT5
    covariance: Array = scaled * (amplitude / 3.0)
    covariance += amplitude
    covariance *= scaled
    covariance += amplitude
    np.negative(scaled, out=scaled)
    covariance *= np.exp(scaled, out=scaled)
    return covariance


class Posterior:
    """What the process believes: of `values` (n,) at the first n of the features `known`.

    The rest of `known` is pending. Pending points count as observed with the value that is expected
    of them: that leaves the mean as it is everywhere, and takes the uncertainty away around them.
    """

    def __init__(self, features: Features, parameters: Array, known: Array, values: Array) -> None:
        self._scales = np.exp(-parameters[:-2])[features.dimension_of]
        self._amplitude = math.exp(parameters[-2])
        self._known = _Scaled(known, self._scales)
        num = len(values)
        covariance = _covariance(self._known, self._known, self._amplitude)
        to_pending = covariance[:num, num:].copy()
        factor = _factor(covariance, parameters[-1])
        weights, _ = lapack.dpotrs(np.asfortranarray(factor[:num, :num]), values, lower=1)
        self._weights = np.zeros(len(known))
        self._weights[:num] = weights
        # A product with the inverse takes half the time of solving for each set of candidates.
        self._inverse, _ = lapack.dtrtri(factor, lower=1)
        self.best = float(values.min())
        if to_pending.size:
            self.best = min(self.best, float((weights @ to_pending).min()))

    def explains_nothing(self, values: Array) -> bool:
        """Whether each value is foretold by the others no better than by their mean."""
        num = len(values)
        missed = self._weights[:num] / np.square(self._inverse[:num, :num]).sum(axis=0)
        return float(missed @ missed) >= float(values @ values) * (num / (num - 1)) ** 2

    def mean(self, candidates: Array) -> Array:
        """(m,) expected at features (m, c)."""
        mean: Array = self._weights @ self._to(candidates)
        return mean

    def predict(self, candidates: Array) -> tuple[Array, Array]:
        """Mean and standard deviation, each (m,), at features (m, c)."""
        covariance = self._to(candidates)
        explained = self._inverse @ covariance
        variance = self._amplitude - np.einsum("ij,ij->j", explained, explained)
        return self._weights @ covariance, np.sqrt(np.maximum(variance, _MIN_DEVIATION**2))

    def _to(self, candidates: Array) -> Array:
        return _covariance(self._known, _Scaled(candidates, self._scales), self._amplitude)


def _factor(matrix: Array, log_noise: float) -> Array:
    """The lower Cholesky factor; where rounding made the matrix indefinite, with more noise."""
    step = len(matrix) + 1
    noise, more = 0.0, math.exp(log_noise) + _JITTER
    while True:
        matrix.flat[::step] += more
        noise += more
        factor, info = lapack.dpotrf(matrix.T, lower=1)  # symmetric, and so in Fortran's order
        if not info:
            return np.asarray(factor)
        more = 99.0 * noise


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """The logarithm of how much smaller than `best` a value is expected to be."""
    score = (best - mean) / deviation
    improvement = np.exp(-0.5 * score * score) / math.sqrt(2.0 * math.pi) + score * ndtr(score)
    far = np.minimum(score, -5.0)  # there the sum above is rounded to nothing
    tail = -0.5 * far * far - 0.5 * math.log(2.0 * math.pi) - 2.0 * np.log(-far)
    near = np.log(np.maximum(improvement, 1e-300))
    result: Array = np.where(score > -5.0, near, tail) + np.log(deviation)
    return result
