"""The preview of a study: what is asked for, from its spec, and the answer as a document. Pure."""

from dataclasses import asdict
from typing import Any

from drivetrain_schemas.studies import StudySpec
from services.hpo import spaces
from services.hpo.core.preview import Asked, Known, preview
from services.hpo.core.samplers import num_points


def preview_of(spec: StudySpec, known: Known) -> dict[str, Any]:
    """What the study will use, as JSON: `core.preview.Preview` with its fields.

    A span is {"low", "likely", "high"}; times are in hours, money in US dollars.
    """
    return asdict(preview(_asked(spec), known))


def _asked(spec: StudySpec) -> Asked:
    limits = spec.limits
    return Asked(
        num_trials=num_points(spec.sampler.value, spaces.to_space(spec), spec.max_trials),
        max_parallel_trials=spec.max_parallel_trials,
        devices=spec.job.resources.devices,
        max_steps=spec.job.max_steps,
        pruner=spec.pruner,
        max_device_hours=limits.device_hours,
        max_cost_usd=limits.cost_usd,
        max_hours=limits.hours,
        may_end_sooner=limits.no_improvement is not None or limits.failed_trials is not None,
    )
