"""What a study may ask for: refused with the field and the fix."""

from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.studies import StudySubmit
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

POPULATION = {"type": "population", "every_steps": 20, "size": 3, "quantile": 0.5}
FACTOR = "pruner.reduction_factor"
PERCENTILE = "pruner.percentile"


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
        ({"pruner": {"type": "median", "every_steps": 0}}, "pruner.every_steps"),
        ({"pruner": {"type": "median", "every_steps": 1}}, "pruner.every_steps"),
        ({"pruner": {"type": "median", "every_steps": 10}}, "pruner.min_trials"),
        (
            {"pruner": {"type": "percentile", "every_steps": 9, "warmup_steps": 99}},
            "pruner.warmup_steps",
        ),
        ({"pruner": {"type": "percentile", "every_steps": 9, "percentile": 101}}, PERCENTILE),
        ({"pruner": {"type": "patience", "every_steps": 9, "rungs": 11}}, "pruner.rungs"),
        ({"pruner": {"type": "asha", "min_steps": 9, "reduction_factor": 1}}, FACTOR),
        ({"pruner": {"type": "halving", "min_steps": 9, "reduction_factor": 4}}, FACTOR),
        ({"pruner": {"type": "asha", "min_steps": 9, "mode": "kill"}}, "pruner.mode"),
        ({"pruner": {**POPULATION, "size": 4}}, "pruner.size"),
        ({"pruner": {**POPULATION, "quantile": 0.6}}, "pruner.quantile"),
        ({"pruner": {**POPULATION, "quantile": 0.3}}, "pruner.quantile"),
        ({"pruner": POPULATION}, "job.checkpoint.every_steps"),
        (
            {"pruner": POPULATION, "job": {**JOB, "checkpoint": {"every_steps": 50}}},
            "job.checkpoint.every_steps",
        ),
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


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"metric": None}, "metric"),
        ({"metric": {"name": "loss", "goal": "less"}}, "metric.goal"),
        ({"metric": {"name": "loss"}}, "metric.goal"),
        ({"max_steps": None}, "max_steps"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_trials": 0}, "max_trials"),
        ({"pruner": {"type": "asha", "min_steps": 200}}, "pruner.min_steps"),
    ],
)
def test_what_is_wrong_with_an_external_study_is_named_as_it_was_written(
    fields: dict[str, Any], field: str
) -> None:
    asha = {"type": "asha", "min_steps": 9}
    written = {**SPEC, "external": True, "metric": JOB["metric"], "max_steps": 100, "pruner": asha}
    del written["job"]
    request = {"request_id": "one", "spec": {**written, "max_trials": 9}}
    StudySubmit.model_validate(request)
    with pytest.raises(ValidationError) as caught:
        StudySubmit.model_validate({**request, "spec": {**request["spec"], **fields}})
    [error] = field_errors(caught.value)
    assert error.field == f"spec.{field}"


@pytest.mark.parametrize("max_steps", [100, 1000, 64_001, 65_001])
def test_the_fix_of_too_many_rungs_is_the_smallest_that_fits(max_steps: int) -> None:
    spec = {**SPEC, "max_trials": 10, "job": {**JOB, "max_steps": max_steps}}

    def submit(every_steps: int) -> None:
        pruner = {"type": "median", "every_steps": every_steps}
        StudySpec.model_validate({**spec, "pruner": pruner})

    with pytest.raises(ValidationError) as caught:
        submit(1)
    [error] = field_errors(caught.value)
    least = int(error.fix.split()[1].replace(",", ""))
    submit(least)
    with pytest.raises(ValidationError):
        submit(least - 1)


def test_a_population_that_saves_often_enough_is_accepted() -> None:
    job = {**JOB, "checkpoint": {"every_steps": 20}}
    spec = StudySpec.model_validate({**SPEC, "pruner": POPULATION, "job": job})
    assert spec.pruner is not None
