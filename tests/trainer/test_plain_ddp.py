"""A script as in the tutorial of DDP goes on from its own snapshot, on another machine too."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainer.pods import Pod
from tests.trainer.ranks import SCRIPTS
from tests.trainer.test_habits import flat, same
from tests.trainer.test_job_files import lose_the_machine

HABITS = Path(__file__).parent / "habits"
ARGUMENTS = ["6", "8"]  # epochs, batch size: 3 steps an epoch on each of two ranks
MakePod = Callable[..., Pod]


@pytest.mark.heavy
def test_it_ends_as_if_it_had_not_been_killed(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    script = str(HABITS / "plain_ddp.py")
    whole = make_pod(request="whole", command=["python", script, *ARGUMENTS], num_ranks=2)
    whole.start_warm(template)
    assert whole.wait_for_exit().outcome == "succeeded", whole.log

    kill_at = random.Random("plain_ddp").choice([5, 7, 8, 10, 11])  # within an epoch
    first = make_pod(
        command=["torchrun", str(SCRIPTS / "killed_at.py"), script, *ARGUMENTS],
        num_ranks=2,
        environment={"KILL_AT": kill_at},
    )
    first.start_cold()
    assert first.wait_for_exit(120).outcome == "failed", first.log
    lose_the_machine(first)

    again = make_pod(command=["torchrun", script, *ARGUMENTS], num_ranks=2, attempt=2)
    again.start_cold()
    assert again.wait_for_exit(120).outcome == "succeeded", again.log
    at = (kill_at - 1) // 3
    assert again.log.count(f"Resuming training from snapshot at Epoch {at}") == 2
    wanted, found = (torch.load(pod.work / "snapshot.pt") for pod in (whole, again))
    assert found["EPOCHS_RUN"] == 6
    assert found["LOSSES"] == wanted["LOSSES"]
    assert len(found["LOSSES"]) == 18
    for part in ("MODEL_STATE", "OPTIMIZER_STATE"):
        assert same(flat(found[part]), flat(wanted[part]))
