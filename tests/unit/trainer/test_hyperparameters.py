"""Defaults of the script, overridden by the job; invalid values are refused by their field."""

import pytest

from drivetrain.errors import InvalidHyperparameters
from drivetrain.hyperparameters import merge

DEFAULTS = {"learning_rate": 0.1, "batch": 64, "name": "net", "warm": True}


def test_the_job_overrides_defaults_and_the_rest_stays() -> None:
    assert merge(DEFAULTS, {"learning_rate": 0.5}) == {**DEFAULTS, "learning_rate": 0.5}


def test_whole_and_real_numbers_are_converted() -> None:
    merged = merge(DEFAULTS, {"learning_rate": 1, "batch": 32.0})
    assert (merged["learning_rate"], merged["batch"]) == (1.0, 32)
    assert isinstance(merged["batch"], int)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        pytest.param({"lerning_rate": 1.0}, "did you mean learning_rate", id="misspelt"),
        pytest.param({"depth": 3}, "it has batch, learning_rate, name, warm", id="unknown"),
        pytest.param({"batch": 1.5}, "1.5 is a float", id="a fraction for a whole number"),
        pytest.param({"batch": "64"}, "'64' is a str", id="a string for a number"),
        pytest.param({"learning_rate": True}, "True is a bool", id="a boolean for a number"),
        pytest.param({"warm": 1}, "1 is a int", id="a number for a boolean"),
    ],
)
def test_an_invalid_value_is_refused_by_its_field(overrides, words) -> None:
    with pytest.raises(InvalidHyperparameters, match=words) as refusal:
        merge(DEFAULTS, overrides)
    assert str(refusal.value).startswith(f"hyperparameters.{next(iter(overrides))}: ")


def test_a_script_without_hyperparameters_accepts_none() -> None:
    with pytest.raises(InvalidHyperparameters, match="it has none"):
        merge({}, {"learning_rate": 1.0})


def test_the_hyperparameters_of_a_run_are_read_only() -> None:
    with pytest.raises(TypeError):
        merge(DEFAULTS, {})["batch"] = 1  # type: ignore[index]


def test_a_name_in_the_command_need_not_be_declared() -> None:
    """The script gets its value as an argument, as with argparse."""
    assert merge({"width": 8}, {"lr": 0.5}, ("lr",)) == {"width": 8, "lr": 0.5}
    with pytest.raises(InvalidHyperparameters, match=r"pass it in the command as \{depth\}"):
        merge({"width": 8}, {"depth": 2}, ("lr",))
