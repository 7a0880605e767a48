"""`import drivetrain` is light, and its public names are the listed ones."""

import subprocess
import sys

import pytest

import drivetrain

HEAVY = ("torch", "numpy", "safetensors", "aiokafka", "aiobotocore")


def test_importing_drivetrain_imports_nothing_heavy() -> None:
    program = (
        "import sys, drivetrain, drivetrain.cli\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_command_line_does_not_import_the_loop() -> None:
    program = "import sys, drivetrain.cli.main; print('drivetrain.training' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_public_names_are_those_that_are_listed() -> None:
    for name in drivetrain.__all__:
        assert getattr(drivetrain, name).__name__ == name
    modules = {name.split(".")[1] for name in sys.modules if name.startswith("drivetrain.")}
    public = {name for name in vars(drivetrain) if not name.startswith("_")} - modules
    assert public - {"TYPE_CHECKING"} == set(drivetrain.__all__)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Runn'"):
        _ = drivetrain.Runn
