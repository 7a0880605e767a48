"""From an accepted request to the first training step, and the parts of that time.

Ours: a two-rank job on a running platform, whose ranks are forked from the warm template. Peer:
torchrun of the same script, cold, on the same machine, in turn with ours. Both clocks are the same
machine's; the script itself prints when its first step is done.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.report import Row, options, publish
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

TITLE = "A job's start"
MEASURES = (
    "services/scheduler/core",
    "services/scheduler/loop.py",
    "services/scheduler/pods.py",
    "services/scheduler/launchers/local.py",
    "services/scheduler/launchers/template.py",
    "trainer/drivetrain/template.py",
    "trainer/drivetrain/started.py",
    "trainer/drivetrain/parallel.py",
    "trainer/drivetrain/pod",
)
NOTES = """
Median and range, on a running platform of this machine, from the event that the job is queued to
the end of its first step: what REST and the packing of code take before is not in it. The peer
starts the same script cold. The difference is imports: ranks are forked from a process that has
already imported everything ([0002](decisions/0002-pods-and-template.md)).
"""

TARGET = 0.2
MAX_STEPS = 5
FIRST_STEP = re.compile(r"first step done at (\d+\.\d+)")
SCRIPT = """
import time, torch, drivetrain
with drivetrain.run(max_steps=5) as run:
    model = run.parallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.resume(model=model, optimizer=optimizer)
    for step in run.steps():
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if step == 1 and run.rank == 0:
            print(f"first step done at {time.time()}", flush=True)
        run.log(loss=loss)
"""


def main() -> None:
    given = options("job_start", "Time from an accepted request to the first training step")
    repeats = 1 if given.quick else 10
    ours: list[dict[str, float]] = []
    peer: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        platform = StandalonePlatform(Path(folder) / "home")
        platform.start()
        try:
            for number in range(repeats):
                ours.append(start_on_the_platform(platform))
                peer.append(start_with_torchrun(script))
                print(f"{number + 1}/{repeats}: {ours[-1]['whole']:.2f} s, {peer[-1]:.2f} s")
        finally:
            platform.stop()
    publish(rows(ours, peer), given, ["torch", "aiokafka", "asyncpg"])


def start_on_the_platform(platform: StandalonePlatform) -> dict[str, float]:
    """Seconds of each part of one start."""
    job = TrainingJob.submit(
        platform, f"start-{uuid.uuid4().hex[:8]}", script=SCRIPT, max_steps=MAX_STEPS
    )
    assert job.wait_final()["state"] == "succeeded"
    at = {item["type"]: _seconds(item["occurred_at"]) for item in reversed(job.timeline())}
    queued, granted = at["job.queued"], at["allocation.granted"]
    shims = [(pod / "identity.json").stat().st_mtime for pod in job.pods()]
    first = _first_step("\n".join((pod / "log").read_text() for pod in job.pods()))
    return {
        "whole": first - queued,
        "granted": granted - queued,
        "shim": max(shims) - granted,
        "step": first - max(shims),
    }


def start_with_torchrun(script: Path) -> float:
    began = time.time()
    output = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         str(script)],
        capture_output=True, text=True, check=True, cwd=script.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return _first_step(output.stdout) - began


def rows(ours: Sequence[dict[str, float]], peer: Sequence[float]) -> list[Row]:
    cold = statistics.median(peer)
    names = {
        "whole": "accepted request to first step, 2 ranks",
        "granted": "of which: decision and grant",
        "shim": "of which: pods started",
        "step": "of which: ranks, rendezvous, first step",
    }
    found = []
    for part, what in names.items():
        times = [start[part] for start in ours]
        ratio = statistics.median(times) / cold
        is_whole = part == "whole"
        found.append(
            Row(
                id=f"job_start.{part}",
                what=what,
                ours=_spread(times),
                peer=_spread(peer) if is_whole else "",
                ratio=ratio,
                target=f"at most {TARGET} x torchrun, cold" if is_whole else "",
                met=ratio <= TARGET if is_whole else True,
            )
        )
    return found


def _spread(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f})"


def _first_step(output: str) -> float:
    found = FIRST_STEP.search(output)
    assert found, output[-2000:]
    return float(found[1])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main()
