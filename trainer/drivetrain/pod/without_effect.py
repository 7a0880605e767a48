"""What a job asks for and its program has not done. Pure; for programs that ended with success.

The package warns by itself, with the names of what it was given; this is for all other programs.
"""

from collections.abc import Iterator

from drivetrain.messages import Warned
from drivetrain_schemas.jobs import JobSpec


def without_effect(job: JobSpec, has_saved: bool, has_metric: bool) -> Iterator[Warned]:
    """`has_saved`: a checkpoint was written. `has_metric`: the result has the job's metric."""
    if job.checkpoint.every_steps and not has_saved:
        yield Warned(
            "policy_unused",
            "checkpoint.every_steps has had no effect: only run.resume(...) of drivetrain writes"
            " checkpoints; the files of any program are saved by checkpoint.every_minutes",
        )
    if job.metric is not None and not has_metric:
        yield Warned(
            "metric_missing",
            f"the job's metric {job.metric.name!r} has no value: log it with drivetrain, or run"
            f" `drivetrain report {job.metric.name}=VALUE --step N`",
        )
