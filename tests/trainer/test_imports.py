"""`import drivetrain` is light, and its public names are the listed ones."""

import subprocess
import sys

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


def test_the_public_names_are_those_that_are_listed() -> None:
    modules = {name.split(".")[1] for name in sys.modules if name.startswith("drivetrain.")}
    public = {name for name in vars(drivetrain) if not name.startswith("_")} - modules
    assert public == set(drivetrain.__all__)
