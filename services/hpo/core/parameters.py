"""One hyperparameter of a space: random bits, a grid or a number in [0, 1] become its value.

Values are always within their bounds. Real numbers are rounded to 12 significant digits: they are
readable, and differences in the last bits of two machines' exp() disappear.
"""

from collections.abc import Callable
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
    """One of the given values; a constant is a choice of one value."""

    values: tuple[Scalar, ...]


Parameter = Uniform | Integer | Choice


def is_fixed(parameter: Parameter) -> bool:
    """Whether it has one value only."""
    if isinstance(parameter, Choice):
        return len(typed(parameter.values)) == 1
    return parameter.low == parameter.high


def typed(values: tuple[Scalar, ...]) -> tuple[tuple[type, Scalar], ...]:
    """The different values. 1, 1.0 and True are equal in Python and three to a program."""
    return tuple(dict.fromkeys((type(value), value) for value in values))


def contains(parameter: Parameter, value: Scalar) -> bool:
    if isinstance(parameter, Choice):
        return (type(value), value) in typed(parameter.values)
    if isinstance(parameter, Integer):
        return type(value) is int and parameter.low <= value <= parameter.high
    return type(value) in (int, float) and parameter.low <= float(value) <= parameter.high


def draw(parameter: Parameter, bits: int) -> Scalar:
    """The value that 256 uniform random bits choose."""
    if isinstance(parameter, Choice):
        return parameter.values[bits * len(parameter.values) >> NUM_BITS]
    if isinstance(parameter, Uniform):
        return _real(parameter, _fraction(bits))
    if parameter.log:
        return _whole_of_log(parameter, _fraction(bits))
    return parameter.low + (bits * (parameter.high - parameter.low + 1) >> NUM_BITS)


def value_at(parameter: Parameter, unit: float) -> Scalar:
    """The value at this place of [0, 1]; the inverse of `unit_of`."""
    unit = min(max(unit, 0.0), 1.0)
    if isinstance(parameter, Uniform):
        return _real(parameter, unit)
    if isinstance(parameter, Choice):
        return parameter.values[min(int(unit * len(parameter.values)), len(parameter.values) - 1)]
    if parameter.log:
        return _whole_of_log(parameter, unit)
    num = parameter.high - parameter.low + 1
    return parameter.low + min(int(unit * num), num - 1)


def unit_of(parameter: Parameter, value: Scalar) -> float:
    """The value's place in [0, 1]: of a choice or a whole number, the middle of its cell."""
    if isinstance(parameter, Choice):
        index = next(
            index
            for index, each in enumerate(parameter.values)
            if type(each) is type(value) and each == value
        )
        return (index + 0.5) / len(parameter.values)
    assert not isinstance(value, str), f"{value!r} is not a number"
    if isinstance(parameter, Uniform):
        if parameter.log:
            return _place(log(value), log(parameter.low), log(parameter.high))
        return _place(float(value), parameter.low, parameter.high)
    if parameter.log:
        middle = (log(value) + log(value + 1)) / 2
        return _place(middle, log(parameter.low), log(parameter.high + 1))
    return (value - parameter.low + 0.5) / (parameter.high - parameter.low + 1)


def grid_points(parameter: Parameter) -> tuple[Scalar, ...]:
    """The parameter's points on a grid, in order and without repetition."""
    if isinstance(parameter, Choice):
        points = list(parameter.values)
    else:
        assert parameter.num is not None, "a grid needs a number of points"
        steps = parameter.num - 1
        points = [_grid_point(parameter, index, steps) for index in range(parameter.num)]
    return tuple({(type(point), point): point for point in points}.values())


def first_point(parameter: Parameter) -> Scalar:
    """The first of the grid's points."""
    return parameter.values[0] if isinstance(parameter, Choice) else parameter.low


def _whole_of_log(parameter: Integer, fraction: float) -> int:
    # Each whole number n owns the interval [n, n + 1) of the logarithmic scale.
    value = floor(_between(log(parameter.low), log(parameter.high + 1), fraction, exp))
    return min(max(value, parameter.low), parameter.high)


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


def _place(value: float, low: float, high: float) -> float:
    """Where it lies between them, in [0, 1]; scaled first, as their difference may overflow."""
    scale = max(abs(low), abs(high)) or 1.0
    span = high / scale - low / scale
    return min(max((value / scale - low / scale) / span, 0.0), 1.0) if span else 0.0


def _fraction(bits: int) -> float:
    """The highest 53 bits as a number in [0, 1), each one exactly representable."""
    return float(bits >> (NUM_BITS - 53)) / 2.0**53
