"""Which commands start their own ranks."""

import shlex

import pytest

from drivetrain_schemas import launching
from drivetrain_schemas.launching import Launcher


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun train.py", Launcher("torchrun")),
        ("/opt/bin/torchrun --nproc_per_node=4 train.py", Launcher("torchrun", 4)),
        ("torchrun --nproc-per-node gpu train.py", Launcher("torchrun")),
        ("python3 -u -m torch.distributed.run --nproc-per-node 2 t.py", Launcher("torchrun", 2)),
        ("python -m torch.distributed.launch t.py", Launcher("torchrun")),
        ("env A=1 torchrun t.py", Launcher("torchrun")),
        ("accelerate launch --num_processes 2 t.py", Launcher("accelerate launch", 2)),
        ("deepspeed --num_gpus=2 t.py", Launcher("deepspeed", 2)),
        ("bash -c 'cd x && A=1 torchrun --nproc-per-node 2 t.py; ls'", Launcher("torchrun", 2)),
        ("sh -ec 'python prepare.py; accelerate launch t.py'", Launcher("accelerate launch")),
        ("python train.py -m torch.distributed.run --nproc-per-node 2", None),
        ("accelerate test", None),
        ("bash run.sh", None),
        ("bash -c 'echo torchrun'", None),
        ("bash -c 'echo \"'", None),
        ("python", None),
        ("python -m", None),
        ("env", None),
    ],
)
def test_launchers_are_recognized(command: str, expected: Launcher | None) -> None:
    words = shlex.split(command) if '"' not in command else ["bash", "-c", 'echo "']
    assert launching.find(tuple(words)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "torchrun --standalone --nproc_per_node 2 --max-restarts 3 t.py --standalone -n 2",
            "torchrun --max-restarts 3 t.py --standalone -n 2",
        ),
        (
            "python -m torch.distributed.run --nnodes=2 --master-port 1 -m pkg --nnodes 3",
            "python -m torch.distributed.run -m pkg --nnodes 3",
        ),
        ("env A=1 torchrun --node-rank=1 -t 3 t.py", "env A=1 torchrun -t 3 t.py"),
        ("accelerate launch --num_processes 2 t.py", "accelerate launch --num_processes 2 t.py"),
        ("torchrun --nproc-per-node", "torchrun"),
    ],
)
def test_what_the_platform_says_of_the_place_counts(command: str, expected: str) -> None:
    assert launching.without_place(shlex.split(command)) == shlex.split(expected)
