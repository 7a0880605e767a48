"""What is refused at submission although the contract allows it, with the fix."""

import pytest

from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.submission import problems

CASES = {
    "a name in the command that is no hyperparameter": (
        {"command": ["t", "{lr}"]},
        ("command", "give a value for lr, or write {{lr}} for the text {lr}"),
    ),
    "two names of one variable": (
        {"hyperparameters": {"lr": 1, "wd": 2, "LR": 3}},
        ("hyperparameters.LR", "give it a name that differs in more than its capitals"),
    ),
    "a metric with a zero-width space": (
        {"metric": {"name": "lo\u200bss", "goal": "minimize"}},
        ("metric.name", "write printable characters, with no space at either end"),
    ),
    "a metric with a right-to-left mark": (
        {"metric": {"name": "loss\u200f", "goal": "minimize"}},
        ("metric.name", "write printable characters, with no space at either end"),
    ),
    "a metric with a joiner": ({"metric": {"name": "می‌شود 👩‍🔬", "goal": "minimize"}}, None),
}


@pytest.mark.parametrize(("fields", "want"), CASES.values(), ids=CASES.keys())
def test_problems(fields, want) -> None:
    spec = JobSpec.model_validate({"name": "test", "command": ["t"], **fields})
    found = [(problem.field, problem.fix) for problem in problems(spec)]
    assert found == ([want] if want else [])
    assert all(problem.message.isprintable() for problem in problems(spec))
