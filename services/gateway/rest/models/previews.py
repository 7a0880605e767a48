"""What a study would use."""

from pydantic import BaseModel


class Span(BaseModel):
    """Bounds and the likely value."""

    low: float
    likely: float
    high: float


class PreviewRung(BaseModel):
    """How many trials come to this step."""

    step: int
    num_trials: Span


class Preview(BaseModel):
    """None where something is not known, which `unknown` names. Times are in hours.

    `steps_without_pruner` is what the same number of whole trials would use. `reached_limits` are
    those that would end the study before its last trial.
    """

    num_trials: int
    rungs: list[PreviewRung]
    steps: Span | None
    steps_without_pruner: int | None
    device_hours: Span | None
    cost_usd: Span | None
    hours: Span | None
    reached_limits: list[str]
    unknown: list[str]
