"""What of a job is watched for its alerts, by its spec."""

from dataclasses import dataclass

from drivetrain_schemas.specs import Goal, JobSpec, is_loss


@dataclass(frozen=True, slots=True)
class Watched:
    """`losses`: series that may diverge. `stalled_seconds`: how long a step may take; None: by what
    steps usually take."""

    losses: tuple[str, ...] = ("loss",)
    stalled_seconds: float | None = None


def watched(spec: JobSpec) -> Watched:
    """Other losses than the one that is minimized may rise in a healthy run: those of an adversary,
    of a value function, of a term that is weighted more and more."""
    minutes = spec.alerts.stalled_minutes
    return Watched(_losses(spec), None if minutes is None else 60 * minutes)


def _losses(spec: JobSpec) -> tuple[str, ...]:
    if spec.alerts.diverging is not None:
        return spec.alerts.diverging
    metric = spec.metric
    if metric is not None and metric.goal is Goal.MINIMIZE and is_loss(metric.name):
        return (metric.name,)
    return Watched().losses
