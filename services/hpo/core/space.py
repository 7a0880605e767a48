"""The space of a search: named parameters, each of which turns random bits or a grid into values.

Values are always within their bounds. Real numbers are rounded to 12 significant digits: they are
readable, and differences in the last bits of two machines' exp() disappear.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, floor, log

Scalar = bool | int | float | str
Point = dict[str, Scalar]

NUM_BITS = 256
_SIGNIFICANT_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Uniform:
    """A real number between `low` and `high`, uniform in its logarithm where `log` says so."""

    low: float
    high: float
    log: bool = False
    num: int | None = None


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    num: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the given values."""

    values: tuple[Scalar, ...]


Parameter = Uniform | Integer | Choice
# Sorted by name, so that nothing depends on the order in which the space was written.
Space = tuple[tuple[str, Parameter], ...]


def make_space(parameters: Mapping[str, Parameter]) -> Space:
    return tuple(sorted(parameters.items(), key=lambda item: item[0]))


def draw(parameter: Parameter, bits: int) -> Scalar:
    """The value that 256 uniform random bits choose."""
    if isinstance(parameter, Choice):
        return parameter.values[bits * len(parameter.values) >> NUM_BITS]
    if isinstance(parameter, Uniform):
        return _real(parameter, _fraction(bits))
    if parameter.log:
        # Each whole number n owns the interval [n, n + 1) of the logarithmic scale.
        value = floor(_between(log(parameter.low), log(parameter.high + 1), _fraction(bits), exp))
        return min(max(value, parameter.low), parameter.high)
    return parameter.low + (bits * (parameter.high - parameter.low + 1) >> NUM_BITS)


def grid_points(parameter: Parameter) -> tuple[Scalar, ...]:
    """The parameter's points on a grid, in order and without repetition."""
    if isinstance(parameter, Choice):
        points = list(parameter.values)
    else:
        assert parameter.num is not None, "a grid needs a number of points"
        steps = parameter.num - 1
        points = [_grid_point(parameter, index, steps) for index in range(parameter.num)]
    # 1, 1.0 and True are equal in Python and three different hyperparameters to a program.
    return tuple({(type(point), point): point for point in points}.values())


def first_point(parameter: Parameter) -> Scalar:
    """The first of the grid's points."""
    return parameter.values[0] if isinstance(parameter, Choice) else parameter.low


def _grid_point(parameter: Uniform | Integer, index: int, steps: int) -> Scalar:
    if index == 0:
        return parameter.low
    if index == steps:
        return parameter.high
    if isinstance(parameter, Uniform):
        return _real(parameter, index / steps)
    if parameter.log:
        value = round(_between(log(parameter.low), log(parameter.high), index / steps, exp))
        return min(max(value, parameter.low), parameter.high)
    span = parameter.high - parameter.low
    return parameter.low + (2 * index * span + steps) // (2 * steps)


def _real(parameter: Uniform, fraction: float) -> float:
    if parameter.log:
        value = _between(log(parameter.low), log(parameter.high), fraction, exp)
    else:
        value = _between(parameter.low, parameter.high, fraction, float)
    rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return min(max(rounded, parameter.low), parameter.high)


def _between(low: float, high: float, fraction: float, scale: Callable[[float], float]) -> float:
    """A weighted mean and not `low + fraction * (high - low)`, whose difference may overflow."""
    return scale(low * (1.0 - fraction) + high * fraction)


def _fraction(bits: int) -> float:
    """The highest 53 bits as a number in [0, 1), each one exactly representable."""
    return float(bits >> (NUM_BITS - 53)) / 2.0**53
