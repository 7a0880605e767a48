"""Defaults of the script, overridden by the job; what does not fit is refused by its field."""

import pytest

from drivetrain.errors import InvalidHyperparameters
from drivetrain.hyperparameters import merge

DEFAULTS = {"learning_rate": 0.1, "batch": 64, "name": "net", "warm": True}


def test_the_job_overrides_and_the_rest_stays() -> None:
    assert merge(DEFAULTS, {"learning_rate": 0.5}) == {**DEFAULTS, "learning_rate": 0.5}


def test_a_whole_number_fits_a_real_one_and_the_other_way_round() -> None:
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
        pytest.param({"learning_rate": True}, "True is a bool", id="a truth for a number"),
        pytest.param({"warm": 1}, "1 is a int", id="a number for a truth"),
    ],
)
def test_what_does_not_fit_is_refused_naming_the_field(overrides, words) -> None:
    with pytest.raises(InvalidHyperparameters, match=words) as refusal:
        merge(DEFAULTS, overrides)
    assert str(refusal.value).startswith(f"hyperparameters.{next(iter(overrides))}: ")


def test_a_script_without_hyperparameters_takes_none() -> None:
    with pytest.raises(InvalidHyperparameters, match="it has none"):
        merge({}, {"learning_rate": 1.0})


def test_what_a_run_reads_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        merge(DEFAULTS, {})["batch"] = 1  # type: ignore[index]
