"""Hyperparameters in commands: what is replaced, and what is left as it is."""

import pytest

from drivetrain_schemas import placeholders

VALUES = {"learning_rate": 1e-05, "depth": 3, "use_amp": True, "name": "{depth} {{x}}"}


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("--lr={learning_rate}", "--lr=1e-05"),
        ("{depth}x{depth}", "3x3"),
        ("{use_amp}", "true"),
        ("{name}", "{depth} {{x}}"),
        ("{{depth}}", "{depth}"),
        ("${depth} ${HOME}", "${depth} ${HOME}"),
        ('{"depth": {depth}}', '{"depth": 3}'),
        ("{print $1} {a,b} {} {0}", "{print $1} {a,b} {} {0}"),
        ("{other}", "{other}"),
    ],
)
def test_a_name_in_braces_is_replaced_and_nothing_else(word: str, want: str) -> None:
    assert placeholders.fill(["t", word], VALUES) == ("t", want)


def test_unknown_names_are_found_once_and_in_order() -> None:
    command = ["t", "{lr} {depth}", "{wd} {{wd}}", "{lr} ${HOME}"]
    assert placeholders.unknown(command, VALUES) == ("lr", "wd")


def test_each_hyperparameter_has_a_variable() -> None:
    assert placeholders.variables({"learning_rate": 0.05, "use_amp": False}) == {
        "DRIVETRAIN_HP_LEARNING_RATE": "0.05",
        "DRIVETRAIN_HP_USE_AMP": "false",
    }
