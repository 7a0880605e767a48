"""What a job asks for and its program has not done."""

from drivetrain.pod.without_effect import without_effect
from drivetrain_schemas.jobs import JobSpec

METRIC = {"metric": {"name": "accuracy", "goal": "maximize"}}


def kinds(has_saved: bool = False, has_metric: bool = False, **fields) -> list[str]:
    job = JobSpec.model_validate({"name": "test", "command": ["sh"], **fields})
    return [one.warning for one in without_effect(job, has_saved, has_metric)]


def test_checkpoints_that_nobody_writes() -> None:
    assert kinds(checkpoint={"every_steps": 5}) == ["policy_unused"]
    assert kinds(checkpoint={"every_steps": 5}, has_saved=True) == []


def test_minutes_are_those_between_saves_of_files_too() -> None:
    assert kinds(checkpoint={"every_minutes": 1.0}) == []


def test_a_metric_that_nobody_logs() -> None:
    assert kinds(**METRIC) == ["metric_missing"]
    assert kinds(**METRIC, has_metric=True) == []
    assert kinds() == []
