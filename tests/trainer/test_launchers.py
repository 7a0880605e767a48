"""A command that starts its own ranks is started once per pod, and its ranks are one training."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain_schemas.pods import FailureKind, StopNotice
from tests.trainer.pods import Pod
from tests.trainer.ranks import SCRIPTS
from tests.variants import variants

MakePod = Callable[..., Pod]
SCRIPT = str(SCRIPTS / "under_a_launcher.py")


@pytest.mark.parametrize(
    ("launcher", "is_warm"),
    [
        pytest.param(
            "torchrun --standalone --nproc-per-node 2",
            False,
            id="torchrun",
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            "python -m torch.distributed.run",
            True,
            id="module, all devices of the job",
            marks=pytest.mark.heavy,
        ),
    ],
)
def test_ranks_of_a_launcher_train_together(
    make_pod: MakePod, template: Path, launcher: str, is_warm: bool
) -> None:
    pod = make_pod(command=[*launcher.split(), SCRIPT], num_ranks=2)
    pod.start_warm(template) if is_warm else pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded", pod.log
    assert sorted(line for line in pod.log.splitlines() if line.startswith("rank")) == [
        "rank 0 of 2, sum 1",
        "rank 1 of 2, sum 1",
    ]
    assert "whole model by itself" not in pod.log
    assert len(list(pod.checkpoints.glob("*/manifest.json"))) == 1


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_one_device_is_distributed_only_under_a_launcher(
    make_pod: MakePod, tmp_path: Path, launcher: str
) -> None:
    """Accelerate and Transformers ask for LOCAL_RANK: with it they wrap the model."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "names = 'RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT'\n"
        "print('found', *sorted(set(names.split()) & set(os.environ)))\n"
        "import drivetrain\n"
        "with drivetrain.run(max_steps=2) as run:\n"
        "    print('ranks', run.world_size, len([*run.steps()]))\n"
    )
    pod = make_pod(command=[launcher, str(program)])
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded", pod.log
    names = " LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK WORLD_SIZE"
    assert f"found{names if launcher == 'torchrun' else ''}\n" in pod.log
    assert "ranks 1 2" in pod.log


@pytest.mark.parametrize(
    ("end", "kind", "detail"),
    variants(
        [
            ("kill -9 $$", FailureKind.SIGNAL, "rank 1 was killed by signal 9 (SIGKILL)"),
            ("exit 3", FailureKind.EXIT_CODE, "rank 1 ended with exit code 3"),
        ]
    ),
)
def test_the_end_of_a_started_rank_is_that_of_its_launcher(
    make_pod: MakePod, tmp_path: Path, end: str, kind: FailureKind, detail: str
) -> None:
    program = tmp_path / "program.sh"
    program.write_text(f"if [ $RANK = 1 ]; then {end}; fi; exec sleep 600")
    pod = make_pod(command=["torchrun", "--no-python", "sh", str(program)], num_ranks=2)
    pod.start_cold()
    ended = pod.wait_for_exit()
    assert ended.failure is not None
    assert (ended.failure.kind, ended.detail) == (kind, detail), pod.log


@pytest.mark.heavy
def test_launchers_on_several_machines_are_one_training(make_pod: MakePod) -> None:
    command = ["torchrun", "--nproc-per-node", "4", "--nnodes=1", SCRIPT]
    first = make_pod(command=command, num_ranks=2, num_pods=2)
    port = first.spec.master_port
    both = {"command": command, "num_ranks": 2, "num_pods": 2, "master_port": port}
    second = make_pod(pod_index=1, machine="b", **both)
    for pod in (first, second):
        pod.start_cold()
    for pod in (first, second):
        assert pod.wait_for_exit(120).outcome == "succeeded", pod.log
    lines = sorted(line for pod in (first, second) for line in pod.log.splitlines())
    assert [line for line in lines if line.startswith("rank")] == [
        f"rank {rank} of 4, sum 6" for rank in range(4)
    ]


@pytest.mark.parametrize(("reason", "is_saved"), [("preempt", True), ("stop", False)])
@pytest.mark.heavy
def test_a_stop_reaches_the_ranks_of_a_launcher(
    make_pod: MakePod, reason: str, is_saved: bool
) -> None:
    pod = make_pod(command=["torchrun", SCRIPT], num_ranks=2, environment={"MAX_STEPS": 10**6})
    pod.start_cold()
    pod.wait_for_log("rank 1 of 2")
    pod.stop(StopNotice(reason=reason, deadline_seconds=60, checkpoint=is_saved))
    end = pod.wait_for_exit(90)
    assert end.outcome == "interrupted", pod.log
    assert end.result is not None
    assert end.result.step > 0
    assert bool(list(pod.checkpoints.glob("*/manifest.json"))) is is_saved


def test_more_ranks_than_devices_are_refused_once(make_pod: MakePod, tmp_path: Path) -> None:
    pod = make_pod(command=["torchrun", "--nproc-per-node=3", SCRIPT], num_ranks=2)
    pod.start_cold()
    end = pod.wait_for_exit()
    assert (end.outcome, end.failure and end.failure.kind) == ("failed", FailureKind.INVALID)
    assert "ask for 3 devices" in end.detail
