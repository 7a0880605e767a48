"""Which commands a warm process can carry out by itself."""

import pytest

from drivetrain.pod.ranks import runs_in_process


@pytest.mark.parametrize(
    ("command", "want"),
    [
        (["python", "train.py"], True),
        (["python3", "train.py", "--fast"], True),
        (["python", "-m", "package"], True),
        (["python"], False),
        (["python", "-m"], False),
        (["python", "-u", "train.py"], False),
        (["python", "-c", "print(1)"], False),
        (["/usr/bin/python", "train.py"], False),
        (["sh", "train.sh"], False),
    ],
)
def test_only_a_plain_script_or_module(command, want) -> None:
    assert runs_in_process(command, {}) == want


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHASHSEED", "LD_PRELOAD", "MALLOC_ARENA_MAX"])
def test_what_an_interpreter_reads_at_its_start_asks_for_a_new_one(name) -> None:
    assert not runs_in_process(["python", "train.py"], {name: "1"})
    assert runs_in_process(["python", "train.py"], {"MY_OPTION": "1"})
