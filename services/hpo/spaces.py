"""A study's space: from the contract to the core, and what is wrong with it. Pure."""

import json
from collections.abc import Iterator

from drivetrain_schemas import placeholders, spaces
from drivetrain_schemas.expressions import parse
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.studies import SamplerName, StudySpec
from services.hpo.core import space
from services.hpo.core.feasibility import feasible_points
from services.hpo.core.grids import MAX_WALKED, Grid


def to_space(spec: StudySpec) -> space.Space:
    placed = spaces.flat(spec.space)
    return space.make_space(
        {name: _parameter(one.parameter) for name, one in placed.items()},
        {
            name: tuple(space.Condition(other, values) for other, values in one.conditions)
            for name, one in placed.items()
            if one.conditions
        },
        tuple(parse(text) for text in spec.constraints),
    )


def largest_point(spec: StudySpec) -> space.Point:
    """Every parameter, also those that never stand in one point, with the most bytes in a spec."""
    placed = spaces.flat(spec.space)
    return {name: _largest_value(_parameter(one.parameter)) for name, one in placed.items()}


def errors_of_space(spec: StudySpec) -> Iterator[FieldError]:
    """Why no trial, or not every trial, could be proposed or run."""
    yield from _errors_of_command(spec)
    if spec.sampler is SamplerName.GRID:
        yield from _errors_of_grid(spec)
    elif spec.constraints:
        found = feasible_points(to_space(spec))
        if not found.points:
            yield _unsatisfiable(spec, f"no point satisfies them: {found.tried} were tried")


def _errors_of_command(spec: StudySpec) -> Iterator[FieldError]:
    """A trial without the parameter would have a command with an open place."""
    placed = spaces.flat(spec.space)
    for name in placeholders.used(spec.job.command):
        if name in placed and placed[name].conditions and name not in spec.job.hyperparameters:
            yield FieldError(
                field="job.command",
                message=f"holds {{{name}}}, which is not used in every trial",
                fix=f"add a value for the other trials: job.hyperparameters.{name}",
            )


def _errors_of_grid(spec: StudySpec) -> Iterator[FieldError]:
    grid = Grid(to_space(spec))
    num_points = grid.num_points(spec.max_trials)
    if grid.is_cut:
        yield FieldError(
            field="space",
            message=f"is a grid of which {MAX_WALKED:,} (partial) combinations have only "
            f"{num_points:,} points that satisfy the constraints",
            fix="give fewer points, or use another sampler",
        )
    elif not num_points:
        yield _unsatisfiable(spec, "no point of the grid satisfies them: all were tried")


def _unsatisfiable(spec: StudySpec, message: str) -> FieldError:
    return FieldError(
        field="constraints" if len(spec.constraints) > 1 else "constraints.0",
        message=message if len(spec.constraints) > 1 else message.replace("them", "it"),
        fix="loosen a constraint, or widen the ranges of the parameters that it reads",
    )


def _largest_value(parameter: space.Parameter) -> space.Scalar:
    match parameter:
        case space.Uniform():
            return -1.23456789012e-300
        case space.Integer():
            return -(2**53)
        case space.Choice(values=values):
            return max(values, key=_num_bytes)


def _num_bytes(value: space.Scalar) -> int:
    return len(json.dumps({"": value}, ensure_ascii=False).encode())


def _parameter(parameter: spaces.WrittenLeaf) -> space.Parameter:
    match parameter:
        case spaces.Uniform(low=low, high=high, log=log, num=num):
            return space.Uniform(low, high, log, num)
        case spaces.Integer(low=low, high=high, log=log, num=num):
            return space.Integer(low, high, log, num)
        case spaces.Choice(values=values):
            return space.Choice(values)
        case spaces.Constant(value=value):
            return space.Choice((value,))
