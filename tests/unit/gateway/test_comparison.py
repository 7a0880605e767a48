"""What differs between the specs of several jobs."""

from typing import Any

import pytest

from services.gateway.core.comparison import NOT_RECORDED, differences


def test_hyperparameters_come_first_and_of_the_rest_only_what_differs() -> None:
    lines = differences(
        [
            {"name": "a", "hyperparameters": {"lr": 0.1, "width": 8}, "resources": {"devices": 1}},
            {"name": "b", "hyperparameters": {"lr": 0.1}, "resources": {"devices": 2}, "seed": 1},
        ]
    )
    assert [(line.name, line.values, line.differs) for line in lines] == [
        ("width", ("8", "none"), True),
        ("lr", ("0.1", "0.1"), False),
        ("resources.devices", ("1", "2"), True),
        ("seed", ("none", "1"), True),
    ]


def rows(*specs: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {line.name: line.values for line in differences(specs)}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "none"), ([], "none"), (["a", 1], "a 1"), (("x",), "x"), (0, "0"), ("", "")],
)
def test_a_value_is_text(value: Any, text: str) -> None:
    assert rows({"a": value}, {"a": "other"}) == {"a": (text, "other")}


def test_a_group_that_was_not_recorded_differs_from_nothing() -> None:
    unknown = {"runs on": NOT_RECORDED}
    assert rows(unknown, {"runs on": {"python": "3.11"}}) == {}
    first, second = ({"runs on": {"python": version}} for version in ("3.11", "3.12"))
    assert rows(unknown, first, second) == {"runs on.python": (NOT_RECORDED, "3.11", "3.12")}
    assert rows({}, first, second) == {"runs on.python": ("none", "3.11", "3.12")}


def test_a_name_differs_nowhere_and_specs_without_hyperparameters_compare() -> None:
    assert rows({"name": "a", "hyperparameters": None}, {"name": "b"}) == {}
    assert rows() == {}
