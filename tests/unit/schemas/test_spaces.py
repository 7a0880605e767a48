"""Spaces that people write: what is refused, with which field and fix, and names in groups."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.spaces import flat
from drivetrain_schemas.study_specs import StudySpec

CHOICE = {"type": "choice", "values": ["sgd", "adam", 1, True]}
WIDTH = {"type": "integer", "low": 8, "high": 64}
RATE = {"type": "uniform", "low": 0.0, "high": 1.0}
GROUP = {"type": "group", "parameters": {"kind": CHOICE, "rate": RATE}}


def make_spec(space: Any, *constraints: str, **fields: Any) -> StudySpec:
    job = {
        "name": "digits",
        "command": "python -m train",
        "metric": {"name": "loss", "goal": "minimize"},
    }
    document = {"name": "search", "job": job, "space": space, "max_trials": 3}
    return StudySpec.model_validate({**document, "constraints": constraints, **fields})


@pytest.mark.parametrize(
    ("space", "field", "message"),
    [
        ({"a": {**RATE, "low": 1.0}}, "space.a.high", "is not above low"),
        ({"a": {**RATE, "low": 2.0}}, "space.a.high", "is not above low"),
        ({"a": {**WIDTH, "low": 64}}, "space.a.high", "is not above low"),
        ({"a": {**RATE, "log": True}}, "space.a.low", "is not above 0, as a log scale needs"),
        ({"a": {**WIDTH, "low": -1, "log": True}}, "space.a.low", "is not above 0"),
        ({"a": {**RATE, "high": float("inf")}}, "space.a.high", "is not a finite number"),
        ({"a": {**RATE, "low": -1e308, "high": 1e308}}, "space.a.high", "is too far from low"),
        ({"a": {**CHOICE, "values": []}}, "space.a.values", "has too few entries"),
        ({"a": {"type": "constant"}}, "space.a.value", "is missing"),
        ({"a": {"type": "group", "parameters": {}}}, "space.a.parameters", "has too few entries"),
        (
            {"a": {"type": "group", "parameters": {"b": {**RATE, "low": 7.0}}}},
            "space.a.parameters.b.high",
            "is not above low",
        ),
        (
            {"a": {"type": "group", "parameters": {"b": GROUP}}},
            "space.a.parameters.b.type",
            "is not one of the allowed values",
        ),
        ({"a": GROUP, "a__rate": RATE}, "space.a__rate", "is a__rate, as another parameter is"),
        (
            {"g" * 100: {"type": "group", "parameters": {"r" * 100: RATE}}},
            f"space.{'g' * 100}.parameters.{'r' * 100}",
            "has a full name of over 128 characters",
        ),
        ({f"a{n}": GROUP for n in range(33)}, "space", "has 66 parameters"),
        ({"a": {**RATE, "when": {"b": [1]}}}, "space.a.when.b", "is not a parameter of the space"),
        (
            {"a": {**RATE, "when": {"b": [1]}}, "b": RATE},
            "space.a.when.b",
            "is a real number, which hardly ever equals a value",
        ),
        (
            {"a": {**RATE, "when": {"b": ["sgd", 1.0]}}, "b": CHOICE},
            "space.a.when.b",
            "1.0 is no value of b",
        ),
        ({"a": {**RATE, "when": {"b": [65]}}, "b": WIDTH}, "space.a.when.b", "65 is no value of b"),
        ({"a": {**RATE, "when": {"b": []}}, "b": WIDTH}, "space.a.when.b", "has too few entries"),
        ({"a": {**WIDTH, "when": {"a": [8]}}}, "space.a.when", "depends on itself"),
        (
            {"a": {**WIDTH, "when": {"b": [8]}}, "b": {**WIDTH, "when": {"a": [8]}}, "c": RATE},
            "space.a.when",
            "depends on itself, over others (among a, b)",
        ),
        (
            {"a": {**GROUP, "when": {"a__kind": ["sgd"]}}},
            "space.a.parameters.kind.when",
            "depends on itself",
        ),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space: Any, field: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make_spec(space)
    error = field_errors(caught.value)[0]
    assert error.field == field
    assert error.message.startswith(message)
    assert error.fix


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("rate * height < 3", "height is not a parameter of the space"),
        ("g__kind < 3", "g__kind may be text or true or false"),
        ("rate + 1", "is not a comparison"),
        ("rate.real < 3", "holds rate.real"),
        ("exit()", "holds exit()"),
    ],
)
def test_a_constraint_that_cannot_be_checked_is_refused(constraint: str, message: str) -> None:
    space = {"rate": RATE, "g": GROUP}
    make_spec(space, "rate < 1", "g__rate < rate")
    with pytest.raises(ValidationError) as caught:
        make_spec(space, "rate < 1", constraint)
    [error] = field_errors(caught.value)
    assert error.field == "constraints.1"
    assert error.message.startswith(message)
    assert error.fix


def test_members_of_groups_have_full_names_and_the_conditions_of_both() -> None:
    when = {"width": [8, 9]}
    member = {**RATE, "when": {"optimizer__kind": ["sgd"]}}
    group = {"type": "group", "parameters": {"kind": CHOICE, "rate": member}, "when": when}
    placed = flat(make_spec({"optimizer": group, "width": WIDTH}).space)
    assert list(placed) == ["optimizer__kind", "optimizer__rate", "width"]
    assert placed["optimizer__kind"].conditions == (("width", (8, 9)),)
    assert placed["optimizer__rate"].conditions == (
        ("width", (8, 9)),
        ("optimizer__kind", ("sgd",)),
    )


def test_a_grid_needs_the_number_of_points_of_members_and_counts_them() -> None:
    with pytest.raises(ValidationError) as caught:
        make_spec({"g": GROUP}, sampler="grid")
    [error] = field_errors(caught.value)
    assert error.field == "space.g.parameters.rate.num"
    rate = {**RATE, "num": 5}
    group = {"type": "group", "parameters": {"kind": CHOICE, "rate": rate}}
    space = {"g": group, "c": {"type": "constant", "value": 3}}
    assert make_spec(space, sampler="grid", max_trials=None).max_trials == 20


def test_a_grid_of_a_million_points_is_refused() -> None:
    space = {f"a{n}": {**RATE, "num": 10} for n in range(6)}
    with pytest.raises(ValidationError) as caught:
        make_spec(space, sampler="grid", max_trials=None)
    [error] = field_errors(caught.value)
    assert (error.field, error.message) == ("space", "is a grid of 1,000,000 points")
    assert make_spec(space, sampler="grid", max_trials=10).max_trials == 10


SCALARS = st.sampled_from([0, 1, -1, 2**60, 0.5, 1e308, float("nan"), "sgd", "", True, None])
LISTS = st.lists(SCALARS, max_size=3)
NAMES = st.sampled_from(["a", "b", "g__a", "lambda", "1", ""])
LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(["uniform", "integer", "choice", "constant", "group", "x"])},
    optional={
        "low": SCALARS,
        "high": SCALARS,
        "log": SCALARS,
        "num": SCALARS,
        "values": LISTS,
        "value": SCALARS,
        "when": st.dictionaries(NAMES, LISTS, max_size=2),
    },
)
PARAMETERS = LEAVES | st.fixed_dictionaries(
    {"type": st.just("group"), "parameters": st.dictionaries(NAMES, LEAVES, max_size=2)},
    optional={"when": st.dictionaries(NAMES, LISTS, max_size=2)},
)
CONSTRAINTS = st.sampled_from(["a < b", "a < 1", "g__a == 'sgd'", "b", "a / 0 < 1", "lambda", ""])


@given(
    st.dictionaries(NAMES, PARAMETERS, max_size=3),
    st.lists(CONSTRAINTS, max_size=2),
    st.sampled_from(["grid", "random", "", 7]),
    SCALARS,
)
def test_any_study_is_accepted_or_refused_with_fields(
    space: Any, constraints: list[str], sampler: Any, max_trials: Any
) -> None:
    fields = {"sampler": sampler, "max_trials": max_trials}
    try:
        spec = make_spec(space, *constraints, **fields)
    except ValidationError as error:
        errors = field_errors(error)
    else:
        assert StudySpec.model_validate_json(spec.model_dump_json()) == spec
        return
    assert errors
    assert all(each.field and each.message for each in errors)
