"""The space of a study: what people write about each hyperparameter that is searched."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Strict
from drivetrain_schemas.specs import Count, Real, Scalar


class Uniform(Strict):
    """A real number between `low` and `high`; on a grid, `num` points."""

    type: Literal["uniform"]
    low: Real
    high: Real
    log: Annotated[bool, Field(strict=True)] = False
    num: Annotated[Count, Field(ge=2, le=1000)] | None = None

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
    values: Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=1000)]


Parameter = Annotated[Uniform | Integer | Choice, Field(discriminator="type")]
