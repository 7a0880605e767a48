"""The space of a search: named parameters, when each takes part, and constraints between them.

A parameter with conditions takes part in a point (is active) only where other parameters have
certain values; a point holds active parameters only. Samplers that compute with numbers see a point
as `units`: one number in [0, 1] for each dimension, NaN where it is inactive.

A constraint that reads an inactive parameter says nothing about the point.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drivetrain_schemas.expressions import Expression
from services.hpo.core.cells import Cells
from services.hpo.core.parameters import (
    NUM_BITS,
    Choice,
    Integer,
    Parameter,
    Point,
    Scalar,
    Uniform,
    contains,
    draw,
    first_point,
    grid_points,
    is_fixed,
    typed,
    unit_of,
    value_at,
)

__all__ = [
    "NUM_BITS",
    "Choice",
    "Condition",
    "Dimension",
    "Expression",
    "Integer",
    "Parameter",
    "Point",
    "Scalar",
    "Space",
    "Uniform",
    "draw",
    "first_point",
    "grid_points",
    "make_space",
]

Units = NDArray[np.float64]

# Draws for one feasible point; this bounds the time, which is then some 20 ms.
MAX_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds where the parameter `other` is active and has one of these values."""

    other: str
    values: tuple[Scalar, ...]

    def holds(self, point: Mapping[str, Scalar]) -> bool:
        value = point.get(self.other)
        return value is not None and (type(value), value) in typed(self.values)


@dataclass(frozen=True, slots=True)
class Dimension:
    """A parameter with more than one value; it is active where all its conditions hold."""

    name: str
    parameter: Parameter
    conditions: tuple[Condition, ...] = ()

    @property
    def num_choices(self) -> int:
        """The number of values without an order between them; 0 for a range."""
        return len(self.parameter.values) if isinstance(self.parameter, Choice) else 0


@dataclass(frozen=True)
class Space:
    """Immutable. Parameters are sorted by name, so nothing depends on how the space was written."""

    parameters: tuple[tuple[str, Parameter], ...]
    conditions: tuple[tuple[str, tuple[Condition, ...]], ...] = ()
    constraints: tuple[Expression, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What varies, sorted by name: the columns of all units."""
        return tuple(
            Dimension(name, parameter, self._conditions.get(name, ()))
            for name, parameter in self.parameters
            if not is_fixed(parameter)
        )

    @cached_property
    def parents_first(self) -> tuple[str, ...]:
        """All names, each after those that its conditions read, else sorted."""
        ordered: dict[str, None] = {}

        def add(name: str) -> None:
            for condition in self._conditions.get(name, ()):
                if condition.other not in ordered:
                    add(condition.other)
            ordered[name] = None

        for name, _ in self.parameters:
            if name not in ordered:
                add(name)
        return tuple(ordered)

    def draw(self, bits: Callable[[str, int], int]) -> Point | None:
        """The first of MAX_ATTEMPTS points that satisfies all constraints, if any.

        `bits` are 256 random bits of a name and an attempt.
        """
        for attempt in range(MAX_ATTEMPTS):
            point = self.draw_any(bits, attempt)
            if self.satisfies(point):
                return point
        return None

    def draw_any(self, bits: Callable[[str, int], int], attempt: int = 0) -> Point:
        """A point within the bounds; it may break constraints."""
        return self._build(lambda name: draw(self._parameters[name], bits(name, attempt)))

    def encode(self, point: Mapping[str, Scalar]) -> Units:
        """The point's place, shape (d,), in [0, 1]; NaN where a dimension is inactive."""
        return np.array(
            [
                unit_of(each.parameter, point[each.name]) if each.name in point else np.nan
                for each in self.dimensions
            ]
        )

    def decode(self, units: Units) -> Point:
        """The point at this place, clipped to the bounds; it may break constraints.

        A number that is NaN where its dimension is active is read as the middle.
        """
        at = {
            dimension.name: 0.5 if np.isnan(unit) else float(unit)
            for dimension, unit in zip(self.dimensions, units, strict=True)
        }
        return self._build(lambda name: value_at(self._parameters[name], at.get(name, 0.0)))

    def snap(self, units: Units) -> Units:
        """The places of the points at these places, `encode(decode(row))` of rows, shape (n, d).

        Real numbers are not rounded.
        """
        known = np.where(np.isnan(units), 0.5, units)
        snapped = self._cells.middles(np.minimum(np.maximum(known, 0.0), 1.0))
        active: dict[str, NDArray[np.bool_]] = {}
        for name in self.parents_first:
            for condition in self._conditions.get(name, ()):
                other = self._parameters[condition.other]
                index = self._columns.get(condition.other)
                places = np.full(len(snapped), 0.5) if index is None else snapped[:, index]
                holds = _holds(other, places, condition) & active.get(condition.other, True)
                active[name] = active.get(name, True) & holds
        for name, is_active in active.items():
            if name in self._columns:
                snapped[~is_active, self._columns[name]] = np.nan
        return snapped

    def active(self, point: Mapping[str, Scalar]) -> frozenset[str]:
        """The names that take part, by the values of those that others depend on."""
        found: dict[str, Scalar] = {}
        for name in self.parents_first:
            if self._is_active(name, found) and name in point:
                found[name] = point[name]
        return frozenset(name for name in self.parents_first if self._is_active(name, found))

    def satisfies(self, point: Mapping[str, Scalar]) -> bool:
        """Whether all constraints hold that read active parameters only."""
        return all(each.holds(point) for each in self.constraints if each.names <= point.keys())

    def is_feasible(self, point: Mapping[str, Scalar]) -> bool:
        """Whether it holds the active parameters, each in bounds, and satisfies all constraints."""
        return (
            point.keys() == self.active(point)
            and all(contains(self._parameters[name], value) for name, value in point.items())
            and self.satisfies(point)
        )

    def is_active(self, name: str, point: Mapping[str, Scalar]) -> bool:
        """Whether it takes part, given the values of the parameters before it (`parents_first`)."""
        return self._is_active(name, point)

    @cached_property
    def _columns(self) -> Mapping[str, int]:
        return {each.name: index for index, each in enumerate(self.dimensions)}

    @cached_property
    def _cells(self) -> Cells:
        return Cells([each.parameter for each in self.dimensions])

    @cached_property
    def _parameters(self) -> Mapping[str, Parameter]:
        return dict(self.parameters)

    @cached_property
    def _conditions(self) -> Mapping[str, tuple[Condition, ...]]:
        return dict(self.conditions)

    def _is_active(self, name: str, point: Mapping[str, Scalar]) -> bool:
        return all(each.holds(point) for each in self._conditions.get(name, ()))

    def _build(self, value_of: Callable[[str], Scalar]) -> Point:
        chosen: Point = {}
        for name in self.parents_first:
            if self._is_active(name, chosen):
                chosen[name] = value_of(name)
        return {name: chosen[name] for name, _ in self.parameters if name in chosen}


def make_space(
    parameters: Mapping[str, Parameter],
    conditions: Mapping[str, tuple[Condition, ...]] | None = None,
    constraints: tuple[Expression, ...] = (),
) -> Space:
    return Space(
        tuple(sorted(parameters.items(), key=lambda item: item[0])),
        tuple(sorted((conditions or {}).items(), key=lambda item: item[0])),
        constraints,
    )


def _holds(other: Parameter, places: Units, condition: Condition) -> NDArray[np.bool_]:
    """Where the parameter at these places has one of the condition's values."""
    allowed = [unit_of(other, value) for value in condition.values if contains(other, value)]
    if isinstance(other, Choice):
        # A value that is given twice has two places.
        allowed = [
            (index + 0.5) / len(other.values)
            for index, value in enumerate(other.values)
            if (type(value), value) in typed(condition.values)
        ]
    return np.isin(places, allowed)
