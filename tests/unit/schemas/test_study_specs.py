"""What a study may ask for: refused with the field and the fix."""

from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.study_specs import StudySpec

JOB = {
    "name": "digits",
    "command": "python -m train",
    "metric": {"name": "loss", "goal": "minimize"},
    "max_steps": 100,
}
SPEC = {
    "name": "search",
    "job": JOB,
    "space": {"a": {"type": "choice", "values": [1, 2]}},
    "max_trials": 3,
}


def test_an_external_study_is_written_without_a_job() -> None:
    short = {name: value for name, value in SPEC.items() if name != "job"}
    spec = StudySpec.model_validate(
        {**short, "external": True, "metric": JOB["metric"], "max_steps": 100}
    )
    assert spec.job.metric is not None
    assert (spec.job.metric.name, spec.job.max_steps, spec.job.name) == ("loss", 100, "search")
    assert StudySpec.model_validate(spec.model_dump()) == spec


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"pruner": {"type": "median", "every_steps": 100}}, "pruner.every_steps"),
        ({"pruner": {"type": "asha", "min_steps": 200}}, "pruner.min_steps"),
        ({"pruner": {"type": "best", "every_steps": 1}}, "pruner.type"),
        ({"pruner": {"type": "threshold", "every_steps": 1}}, "pruner"),
        ({"pruner": {"type": "auto"}, "job": {**JOB, "max_steps": None}}, "job.max_steps"),
        ({"pruner": {"type": "asha", "min_steps": 0}}, "pruner.min_steps"),
        ({"objectives": [{"name": "loss", "goal": "minimize"}]}, "objectives.0.name"),
        ({"safety": {"metric": "memory"}}, "safety"),
        ({"safety": {"metric": "memory", "min": 2.0, "max": 1.0}}, "safety.max"),
        ({"limits": {"device_hours": 0.0}}, "limits.device_hours"),
        ({"limits": {"cost_usd": -1.0}}, "limits.cost_usd"),
        ({"limits": {"hours": float("nan")}}, "limits.hours"),
        ({"limits": {"failed_trials": 0}}, "limits.failed_trials"),
        ({"external": True, "job": {**JOB, "metric": None}}, "job.metric"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_its_field(
    fields: dict[str, Any], field: str
) -> None:
    StudySpec.model_validate(SPEC)
    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate({**SPEC, **fields})
    [error] = field_errors(caught.value)
    assert error.field == field
    assert error.fix
