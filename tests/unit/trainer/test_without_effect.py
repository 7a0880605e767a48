"""What a job asks for and its program has not done."""

import pytest

from drivetrain.pod.without_effect import without_effect
from drivetrain_schemas.jobs import JobSpec

METRIC = {"metric": {"name": "accuracy", "goal": "maximize"}}


def kinds(has_saved: bool = False, has_metric: bool = False, **fields) -> list[str]:
    job = JobSpec.model_validate({"name": "test", "command": ["sh"], **fields})
    return [one.warning for one in without_effect(job, has_saved, has_metric)]


@pytest.mark.parametrize("policy", [{"every_steps": 5}, {"every_minutes": 1.0}])
def test_checkpoints_that_nobody_writes(policy) -> None:
    assert kinds(checkpoint=policy) == ["policy_unused"]
    assert kinds(checkpoint=policy, has_saved=True) == []


def test_a_metric_that_nobody_logs() -> None:
    assert kinds(**METRIC) == ["metric_missing"]
    assert kinds(**METRIC, has_metric=True) == []
    assert kinds() == []
