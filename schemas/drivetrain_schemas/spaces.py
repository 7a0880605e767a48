"""The space of a study: what people write about each hyperparameter that is searched.

`flat` is the space with the members of groups by their full names, such as `optimizer__momentum`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Strict
from drivetrain_schemas.expressions import MAX_CHARACTERS, Kind, check, kind_of, parse
from drivetrain_schemas.specs import Count, Real, Scalar, VariableName
from drivetrain_schemas.text import free_text

MAX_PARAMETERS = 64
MAX_CONSTRAINTS = 32
# Between the name of a group and those of its members.
JOINED_BY = "__"

Values = Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=1000)]
# Other parameters by their full names, and the values of each with which this one is used.
When = Annotated[dict[VariableName, Values], Field(max_length=8)]
Constraints = Annotated[
    tuple[Annotated[str, free_text(MAX_CHARACTERS, min_length=1)], ...],
    Field(max_length=MAX_CONSTRAINTS),
]


class Uniform(Strict):
    """A real number between `low` and `high`; on a grid, `num` points."""

    type: Literal["uniform"]
    low: Real
    high: Real
    log: Annotated[bool, Field(strict=True)] = False
    num: Annotated[Count, Field(ge=2, le=1000)] | None = None
    when: When = {}

    @model_validator(mode="after")
    def _ordered(self) -> "Uniform":
        _check_range(self.low, self.high, self.log)
        if not math.isfinite(self.high - self.low):
            raise Misfit("is too far from low", fix="write a range below 1.7e308", field="high")
        return self


class Integer(Strict):
    """A whole number from `low` to `high`, both included."""

    type: Literal["integer"]
    low: Annotated[Count, Field(ge=-(2**53), le=2**53)]
    high: Annotated[Count, Field(ge=-(2**53), le=2**53)]
    log: Annotated[bool, Field(strict=True)] = False
    num: Annotated[Count, Field(ge=2, le=1000)] | None = None
    when: When = {}

    @model_validator(mode="after")
    def _ordered(self) -> "Integer":
        _check_range(self.low, self.high, self.log)
        return self


def _check_range(low: float, high: float, log: bool) -> None:
    if not low < high:
        raise Misfit("is not above low", fix=f"write more than {low}", field="high")
    if log and low <= 0:
        raise Misfit("is not above 0, as a log scale needs", fix="write more than 0", field="low")


class Choice(Strict):
    """One of the given values."""

    type: Literal["choice"]
    values: Values
    when: When = {}


class Constant(Strict):
    """Always this value: written here and not in the job, it can have a `when` as well."""

    type: Literal["constant"]
    value: Scalar
    when: When = {}


Leaf = Annotated[Uniform | Integer | Choice | Constant, Field(discriminator="type")]


class Group(Strict):
    """Parameters whose names begin with the group's: `lr` in `optimizer` is `optimizer__lr`.

    The `when` of a group holds for all its members, in addition to their own.
    """

    type: Literal["group"]
    parameters: Annotated[dict[VariableName, Leaf], Field(min_length=1, max_length=MAX_PARAMETERS)]
    when: When = {}


Parameter = Annotated[Uniform | Integer | Choice | Constant | Group, Field(discriminator="type")]
WrittenSpace = Annotated[
    dict[VariableName, Parameter], Field(min_length=1, max_length=MAX_PARAMETERS)
]
WrittenLeaf = Uniform | Integer | Choice | Constant
Conditions = tuple[tuple[str, tuple[Scalar, ...]], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A parameter, all conditions under which it is used, and where it is written."""

    parameter: WrittenLeaf
    conditions: Conditions
    path: str


def flat(space: Mapping[str, WrittenLeaf | Group]) -> dict[str, Placed]:
    """Every parameter by its full name; where two have one name, the last."""
    return dict(_placed(space))


def check_space(space: Mapping[str, WrittenLeaf | Group], constraints: tuple[str, ...]) -> None:
    """Raises Misfit for what its parts, each valid, get wrong together."""
    placed = _with_different_names(space)
    if len(placed) > MAX_PARAMETERS:
        fix = f"write at most {MAX_PARAMETERS}, those of groups included"
        raise Misfit(f"has {len(placed)} parameters", fix=fix, field="space")
    for one in placed.values():
        for other, values in one.conditions:
            _check_condition(placed, one, other, values)
    _check_cycles(placed)
    kinds = {name: frozenset(_kinds(one.parameter)) for name, one in placed.items()}
    for index, text in enumerate(constraints):
        try:
            check(parse(text), kinds)
        except Misfit as misfit:
            field = f"constraints.{index}"
            raise Misfit(str(misfit), fix=misfit.fix, field=field) from misfit


def _placed(space: Mapping[str, WrittenLeaf | Group]) -> Iterator[tuple[str, Placed]]:
    for name, parameter in space.items():
        path, own = f"space.{name}", tuple(parameter.when.items())
        if not isinstance(parameter, Group):
            yield name, Placed(parameter, own, path)
            continue
        for inner, member in parameter.parameters.items():
            conditions = own + tuple(member.when.items())
            full = f"{name}{JOINED_BY}{inner}"
            yield full, Placed(member, conditions, f"{path}.parameters.{inner}")


def _with_different_names(space: Mapping[str, WrittenLeaf | Group]) -> dict[str, Placed]:
    found: dict[str, Placed] = {}
    for name, one in _placed(space):
        if name in found:
            raise Misfit(f"is {name}, as another parameter is", fix="rename it", field=one.path)
        if len(name) > 128:
            fix = "shorten the name of the group or its own"
            raise Misfit("has a full name of over 128 characters", fix=fix, field=one.path)
        found[name] = one
    return found


def _check_condition(
    placed: Mapping[str, Placed], one: Placed, other: str, values: tuple[Scalar, ...]
) -> None:
    field = f"{one.path}.when.{other}"
    if other not in placed:
        fix = f"name one of {', '.join(sorted(placed)):.400}"
        raise Misfit("is not a parameter of the space", fix=fix, field=field)
    parameter = placed[other].parameter
    if isinstance(parameter, Uniform):
        fix = "depend on a choice or a whole number"
        raise Misfit("is a real number, which hardly ever equals a value", fix=fix, field=field)
    for value in values:
        if not _can_be(parameter, value):
            raise Misfit(f"{value!r:.80} is no value of {other}", fix="remove it", field=field)


def _can_be(parameter: Integer | Choice | Constant, value: Scalar) -> bool:
    if isinstance(parameter, Integer):
        return type(value) is int and parameter.low <= value <= parameter.high
    values = parameter.values if isinstance(parameter, Choice) else (parameter.value,)
    return any(type(each) is type(value) and each == value for each in values)


def _check_cycles(placed: Mapping[str, Placed]) -> None:
    settled: set[str] = set()
    waiting = dict(placed)
    while waiting:
        free = [
            name
            for name, one in waiting.items()
            if all(other in settled for other, _ in one.conditions)
        ]
        if not free:
            names = ", ".join(sorted(waiting))
            one = min(waiting.values(), key=lambda one: one.path)
            message = f"depends on itself, over others (among {names:.300})"
            raise Misfit(message, fix="let one of them depend on none", field=f"{one.path}.when")
        settled.update(free)
        for name in free:
            del waiting[name]


def _kinds(parameter: WrittenLeaf) -> Iterator[Kind]:
    match parameter:
        case Uniform() | Integer():
            yield Kind.NUMBER
        case Choice(values=values):
            yield from map(kind_of, values)
        case Constant(value=value):
            yield kind_of(value)
