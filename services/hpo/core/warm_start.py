"""The finished trials of an earlier study as trials of this space, for samplers to learn from.

A parameter of this space that the earlier study did not search has the value its job was given,
where there is one. A trial is left out where a value is not known or lies outside this space; what
else the earlier study searched is left away. Constraints of this study do not matter: a point that
it would not try may still tell about those that it will.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from services.hpo.core.parameters import contains, is_fixed
from services.hpo.core.space import Parameter, Point, Scalar, Space, first_point
from services.hpo.core.trials import EarlierStudy


def placed(
    space: Space, finished: Iterable[tuple[Point, float]], given: Mapping[str, Scalar]
) -> EarlierStudy:
    """`finished` are points and losses, `given` the hyperparameters of the earlier study's job."""
    parameters = dict(space)
    units, losses = [], []
    for point, loss in finished:
        own = _own_point(space, parameters, {**given, **point})
        if own is not None:
            units.append(space.encode(own))
            losses.append(loss)
    shape = (len(units), len(space.dimensions))
    return EarlierStudy(np.array(units).reshape(shape), np.array(losses))


def _own_point(
    space: Space, parameters: Mapping[str, Parameter], values: Mapping[str, Scalar]
) -> Point | None:
    own: Point = {}
    for name in space.parents_first:
        if not space.is_active(name, own):
            continue
        parameter = parameters[name]
        if name in values:
            if not contains(parameter, values[name]):
                return None
            own[name] = values[name]
        elif is_fixed(parameter):
            own[name] = first_point(parameter)
        else:
            return None
    return own
