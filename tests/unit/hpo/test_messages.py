"""Translation between contracts and core."""

from bisect import bisect
from typing import Any

import pytest

from drivetrain_schemas.base import canonical_json
from drivetrain_schemas.ids import study_id_for
from drivetrain_schemas.jobs import FieldError, Result
from drivetrain_schemas.specs import MAX_SPEC_BYTES, TrialOf, spec_bytes
from drivetrain_schemas.studies import StudySpec, StudySubmit
from services.hpo import messages
from services.hpo.core.inputs import Ended
from services.hpo.core.space import Choice, Integer, Uniform
from services.hpo.store import JobEnd
from services.scheduler.core.admission import Offer, Request, refuse

STUDY_ID = study_id_for("default", "study-1")


def make_spec(**fields: Any) -> StudySpec:
    document = {
        "name": "digits-search",
        "job": {
            "name": "digits",
            "command": "python -m train",
            "hyperparameters": {"learning_rate": 0.1, "momentum": 0.9},
            "metric": {"name": "loss", "goal": "minimize"},
        },
        "space": {"learning_rate": {"type": "uniform", "low": 0.001, "high": 0.1, "log": True}},
        "max_trials": 3,
    }
    return StudySpec.model_validate({**document, **fields})


def test_a_trials_job_is_the_template_with_the_points_hyperparameters() -> None:
    spec = make_spec()
    job = messages.trial_job(spec, 2, {"learning_rate": 0.02})
    assert job.name == "digits-search-2"
    assert job.hyperparameters == {"learning_rate": 0.02, "momentum": 0.9}
    assert job.metric == spec.job.metric
    same = job.model_copy(update={"name": "digits", "hyperparameters": spec.job.hyperparameters})
    assert same == spec.job


def test_a_long_name_leaves_room_for_the_number() -> None:
    job = messages.trial_job(make_spec(name="n" * 63), 1234, {})
    assert job.name == "n" * 58 + "-1234"


def test_a_trials_command_names_the_study_and_the_number() -> None:
    job = messages.trial_job(make_spec(), 2, {})
    command = messages.trial_command("default", TrialOf(study_id=STUDY_ID, number=2), job)
    assert command.request_id == f"{STUDY_ID}/2"
    assert command.trial is not None
    assert (command.trial.study_id, command.trial.number) == (STUDY_ID, 2)
    assert command == messages.trial_command("default", TrialOf(study_id=STUDY_ID, number=2), job)


def test_equal_requests_written_differently_are_one_request() -> None:
    space = {"a": {"type": "choice", "values": [1]}, "b": {"type": "choice", "values": [2]}}
    spec = make_spec(space=space)
    turned = make_spec(space=dict(reversed(space.items())), sampler="auto", seed=0)
    assert canonical_json(spec) == canonical_json(turned)
    assert messages.read_spec(canonical_json(spec)) == spec


@pytest.mark.parametrize("value", [1.0, True, "1"])
def test_values_that_python_holds_equal_are_different_requests(value: object) -> None:
    one = make_spec(space={"a": {"type": "choice", "values": [1]}})
    other = make_spec(space={"a": {"type": "choice", "values": [value]}})
    assert canonical_json(one) != canonical_json(other)


def test_the_space_is_translated() -> None:
    spec = make_spec(
        space={
            "c": {"type": "choice", "values": ["x", 2]},
            "b": {"type": "integer", "low": 1, "high": 9, "num": 3},
            "a": {"type": "uniform", "low": 0.5, "high": 1.5},
        }
    )
    assert messages.to_plan(spec).space.parameters == (
        ("a", Uniform(0.5, 1.5)),
        ("b", Integer(1, 9, num=3)),
        ("c", Choice(("x", 2))),
    )


def test_a_space_too_wide_for_a_job_is_found_before_the_study_starts() -> None:
    job = {
        "name": "digits",
        "command": "python -m train",
        "hyperparameters": {f"h{index}": 1 for index in range(128)},
        "metric": {"name": "loss", "goal": "minimize"},
    }
    errors = messages.errors_of_trials(make_spec(job=job))
    assert [error.field for error in errors] == ["job.hyperparameters"]
    assert messages.errors_of_trials(make_spec()) == ()


def test_one_value_that_makes_a_job_too_large_is_found_before_the_study_starts() -> None:
    job = make_spec().job.model_dump()
    job["environment"] = {f"E{index}": "e" * 4000 for index in range(24)}
    small, large = ["v"] * 999, ["v" * 1000] * 3
    assert messages.errors_of_trials(make_spec(job=job)) == ()
    space = {f"s{index}": {"type": "choice", "values": small} for index in range(3)}
    assert messages.errors_of_trials(make_spec(job=job, space=space)) == ()
    for parameter in space.values():
        parameter["values"] = ["v", *large]
    assert messages.errors_of_trials(make_spec(job=job, space=space)) != ()


def test_a_job_is_as_large_as_the_scheduler_accepts_with_what_a_trial_adds() -> None:
    """The same limit that admission checks: one byte more, and every trial would be refused."""
    job = make_spec().job.model_dump()
    texts = {f"E{index}": "e" * 4000 for index in range(24)}

    def errors(length: int) -> tuple[FieldError, ...]:
        job["environment"] = {**texts, "LAST": "e" * length}
        return messages.errors_of_trials(make_spec(job=job))

    longest = bisect(range(4096), 0, key=lambda length: len(errors(length))) - 1
    job["environment"] = {**texts, "LAST": "e" * longest}
    spec = make_spec(job=job)
    point = {"learning_rate": -1.23456789012e-300}
    assert spec_bytes(messages.trial_job(spec, 2, point)) == MAX_SPEC_BYTES
    [error] = errors(longest + 1)
    assert error.field == "job"
    assert str(MAX_SPEC_BYTES) in error.fix
    as_admitted = Request("p", 1, None, has_image=False, num_spec_bytes=MAX_SPEC_BYTES)
    assert refuse(as_admitted, Offer({"p": {"cpu": 1}})) is None


def test_a_request_near_the_size_limit_of_events_is_too_large() -> None:
    values = [f"{index:03d}" + "v" * 1020 for index in range(250)]
    spec = make_spec(space={"a": {"type": "choice", "values": values}})
    assert messages.is_too_large(StudySubmit(request_id="r", spec=spec))
    assert not messages.is_too_large(StudySubmit(request_id="r", spec=make_spec()))


def ended_trial(result: Result) -> JobEnd:
    return JobEnd(3, result.model_dump_json(), "")


def test_a_result_ranks_by_its_best_value() -> None:
    result = Result.model_validate(
        {
            "step": 9,
            "metrics": {"loss": 0.5},
            "best": {"name": "loss", "goal": "minimize", "value": 0.25, "step": 4},
        }
    )
    ended = messages.to_ended(ended_trial(result), make_spec())
    assert ended == Ended(3, (0.25,))
    last = result.model_copy(update={"best": None})
    assert messages.to_ended(ended_trial(last), make_spec()) == Ended(3, (0.5,))
    none = Result(step=9)
    assert messages.to_ended(ended_trial(none), make_spec()).values is None


RATE = {"type": "uniform", "low": 0.0, "high": 1.0, "num": 2}
WIDTH = {"type": "integer", "low": 1, "high": 64, "num": 4}
KIND = {"type": "choice", "values": ["sgd", "adam"]}


def errors_of(space: dict[str, Any], *constraints: str, **fields: Any) -> list[tuple[str, str]]:
    spec = make_spec(space=space, constraints=constraints, **fields)
    return [(error.field, error.message) for error in messages.errors_of_trials(spec)]


def test_a_space_without_points_is_told_before_the_study_starts() -> None:
    space = {"width": WIDTH, "depth": WIDTH}
    assert errors_of(space, "width * depth == 4093") == [
        ("constraints.0", "no point satisfies it: all 4,096 combinations were tried")
    ]
    assert errors_of(space, "width * depth == 4032") == []
    assert errors_of({**space, "rate": RATE}, "width > 3", "rate < 0") == [
        ("constraints", "no point satisfies them: 10,000 random points were tried")
    ]


def test_a_grid_is_judged_by_its_own_points() -> None:
    space = {"rate": RATE, "width": WIDTH}
    assert errors_of(space, "0.4 < rate < 0.6", sampler="grid") == [
        ("constraints.0", "no point of the grid satisfies it: all were tried")
    ]
    assert errors_of(space, "0.4 < rate < 0.6") == []
    wide = {f"rate{n}": {**RATE, "num": 1000} for n in range(3)}
    [(field, message)] = errors_of(wide, "rate0 + rate1 + rate2 > 2.999", sampler="grid")
    assert field == "space"
    assert "200,000" in message


def test_a_command_cannot_depend_on_a_parameter_that_some_trials_do_not_have() -> None:
    space = {"kind": KIND, "momentum": {**RATE, "when": {"kind": ["sgd"]}}}
    job = {
        "name": "digits",
        "command": ["train", "{momentum}", "{kind}"],
        "metric": {"name": "loss", "goal": "minimize"},
    }
    assert errors_of(space, job=job) == [
        ("job.command", "holds {momentum}, which is not used in every trial")
    ]
    assert errors_of(space, job={**job, "hyperparameters": {"momentum": 0.9}}) == []


def test_groups_constants_and_conditions_are_translated() -> None:
    member = {**RATE, "when": {"optimizer__kind": ["sgd"]}}
    constant = {"type": "constant", "value": 32}
    group = {"type": "group", "parameters": {"kind": KIND, "momentum": member}}
    spec = make_spec(space={"optimizer": group, "batch": constant})
    space = messages.to_plan(spec).space
    assert [name for name, _ in space] == ["batch", "optimizer__kind", "optimizer__momentum"]
    assert [each.name for each in space.dimensions] == ["optimizer__kind", "optimizer__momentum"]
    assert space.is_feasible({"batch": 32, "optimizer__kind": "adam"})
    assert space.is_feasible({"batch": 32, "optimizer__kind": "sgd", "optimizer__momentum": 0.5})
    assert not space.is_feasible({"batch": 32, "optimizer__kind": "sgd"})
