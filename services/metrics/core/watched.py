"""What of a job is watched for its alerts, by its spec."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain_schemas.specs import AlertRule, Goal, JobSpec, is_loss


@dataclass(frozen=True, slots=True)
class Watched:
    """`losses`: series that may diverge. `stalled_seconds`: how long a step may take; None: by what
    steps usually take."""

    losses: tuple[str, ...] = ("loss",)
    stalled_seconds: float | None = None
    rules: tuple[AlertRule, ...] = ()


def watched(spec: JobSpec) -> Watched:
    """Other losses than the one that is minimized may rise in a healthy run: those of an adversary,
    of a value function, of a term that is weighted more and more."""
    minutes = spec.alerts.stalled_minutes
    return Watched(_losses(spec), None if minutes is None else 60 * minutes, spec.alerts.rules)


def first_beyond(
    rule: AlertRule, steps: Sequence[int], values: Sequence[float]
) -> tuple[int, float] | None:
    """The first value that its rule asks to tell of, with its step. NaN is on no side."""
    for step, value in zip(steps, values, strict=True):
        if step >= rule.after_steps and (
            value < rule.limit if rule.above is None else value > rule.limit
        ):
            return step, value
    return None


def _losses(spec: JobSpec) -> tuple[str, ...]:
    if spec.alerts.diverging is not None:
        return spec.alerts.diverging
    metric = spec.metric
    if metric is not None and metric.goal is Goal.MINIMIZE and is_loss(metric.name):
        return (metric.name,)
    return Watched().losses
