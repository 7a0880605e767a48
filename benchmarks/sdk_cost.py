"""The cost of the SDK for a training loop: per step, and per `run.log`.

A process plays the shim, so samples are sent and acknowledged as in a pod. CPU time of the whole
process is counted, the reporting thread included. First an almost empty loop shows the cost of a
step by itself; then steps of about 20 ms, bare and ours in turn, show the relative cost in
practice. A sample of what a pod uses, and the description of a run's surroundings, which are made
once, are measured by themselves. `run.log` is compared with TensorBoard's `add_scalar`, writer
thread and flush included (`make exchange-tools`; left out without).
"""

import asyncio
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import torch

import drivetrain
from benchmarks.report import Row, options, publish
from drivetrain import control, surroundings
from drivetrain import environment as environments
from drivetrain.messages import Ack, encode_line
from drivetrain.pod import system_metrics, usage
from drivetrain.storage import create_storage
from drivetrain_schemas.ids import job_id_for, run_id_for
from tests.exchange.tools import MISSING, find_tools

TITLE = "The SDK in a training loop"
MEASURES = (
    "trainer/drivetrain/boundary.py",
    "trainer/drivetrain/control.py",
    "trainer/drivetrain/loop.py",
    "trainer/drivetrain/messages.py",
    "trainer/drivetrain/reporting.py",
    "trainer/drivetrain/samples.py",
    "trainer/drivetrain/surroundings.py",
    "trainer/drivetrain/training.py",
    "trainer/drivetrain/pod/system_metrics.py",
    "trainer/drivetrain/pod/usage.py",
)
NOTES = """
CPU time of one rank's process, threads included, with sorting, sending and acknowledgements. What
the shim, Kafka and the metrics service do with the samples is not in it. TensorBoard's
`add_scalar` includes its writer thread and the last flush.
"""

STEP_SECONDS = 0.020
_ADD_SCALAR = """
import sys, tempfile, time
sys.path.append(sys.argv[1])
from torch.utils.tensorboard import SummaryWriter
with tempfile.TemporaryDirectory() as directory, SummaryWriter(directory) as writer:
    writer.add_scalar("loss", 0.5, 0)
    before = time.process_time()
    for step in range(int(sys.argv[2])):
        writer.add_scalar("loss", 0.5, step)
    writer.flush()
    print((time.process_time() - before) / int(sys.argv[2]))
"""


def main() -> None:
    chosen = options("sdk_cost", __doc__ or "")
    torch.set_num_threads(1)
    logging.getLogger("drivetrain").addFilter(lambda record: record.levelno > logging.WARNING)
    with tempfile.TemporaryDirectory() as directory, _as_in_a_pod(Path(directory)):
        step = _measure_step(5_000 if chosen.quick else 200_000)
        log = _measure_log(3 if chosen.quick else 100)
        bare, ours = _measure_loop(2 if chosen.quick else 20)
    add_scalar = _measure_add_scalar(1_000 if chosen.quick else 50_000)
    describing = _measure_describing(5 if chosen.quick else 20)
    system = _measure_system(10 if chosen.quick else 300)
    one_log = "one run.log(loss=...), amortised with sorting, sending and acknowledgements"
    rows = [
        _row(
            "step",
            "cost of the SDK per step (loop, boundary, two values logged)",
            (step * 1e6, STEP_SECONDS * 1e6, "us"),
            0.005,
            "a step",
        ),
        _row(
            "loop",
            "a step of matrix products: with the SDK against bare, CPU, median of blocks",
            (ours * 1e3, bare * 1e3, "ms"),
            1.005,
        ),
        _row("log", one_log, (log * 1e6, 2.0, "us"), 1),
        _row(
            "describing",
            "describing packages and devices, once per run, in a thread, CPU",
            (describing * 1e3, STEP_SECONDS * 1e3, "ms"),
            1,
            "a step",
        ),
        _row(
            "system",
            "a sample of system metrics, a pod of 17 processes, CPU",
            (system * 1e3, system_metrics.SECONDS * 1e3, "ms"),
            0.001,
            "the time until the next",
        ),
    ]
    if add_scalar is not None:
        scalar = "TensorBoard's add_scalar, CPU"
        rows.append(_row("tensorboard", one_log, (log * 1e6, add_scalar * 1e6, "us"), 0.02, scalar))
    lacks = "" if add_scalar else "Without the row of TensorBoard, which was not installed."
    publish(rows, chosen, ("torch", "msgspec"), lacks)


def _row(
    name: str, what: str, measured: tuple[float, float, str], at_most: float, peer: str = ""
) -> Row:
    """`measured`: ours, the peer's, and their unit."""
    ours, theirs, unit = measured
    return Row(
        id=f"sdk_cost.{name}",
        what=what,
        ours=f"{ours:.3g} {unit}",
        peer=f"{theirs:,.5g} {unit}" + (f" ({peer})" if peer else ""),
        ratio=ours / theirs,
        target=f"at most {at_most:g}",
        met=ours / theirs <= at_most,
    )


def _measure_step(num_steps: int) -> float:
    batches = range(1000)

    def bare() -> None:
        done = 0
        while done < num_steps:
            for _ in batches:
                done += 1

    def ours() -> None:
        with drivetrain.run(max_steps=num_steps) as run:
            for number in run.steps(batches):
                run.log(loss=0.5, learning_rate=0.1)
                if number == 999:  # real steps leave the reporting thread its time
                    time.sleep(0.01)

    return max(_cpu_seconds(ours) - _cpu_seconds(bare), 0.0) / num_steps


def _measure_log(num_chunks: int) -> float:
    with drivetrain.run(max_steps=1) as run:
        _begin_training(run)

        def log() -> None:
            for _ in range(num_chunks):
                for _ in range(5000):
                    run.log(loss=0.5)
                time.sleep(0.3)

        seconds = _cpu_seconds(log)
        assert run.num_dropped == 0, "samples were dropped: the figure would be too good"
    return seconds / (num_chunks * 5000)


def _measure_add_scalar(num_calls: int) -> float | None:
    """Seconds of CPU per call, with our torch; None without TensorBoard."""
    tools = find_tools()
    if tools is None:
        print(MISSING)
        return None
    (packages,) = tools.glob("lib/python3.*/site-packages")
    given = [sys.executable, "-c", _ADD_SCALAR, str(packages), str(num_calls)]
    return float(subprocess.run(given, stdout=subprocess.PIPE, check=True).stdout)


def _measure_describing(num_times: int) -> float:
    environment = environments.read(os.environ)

    def describe() -> None:
        for _ in range(num_times):
            surroundings.describe(environment, 0, [], {})

    return _cpu_seconds(describe) / num_times


def _measure_system(num_samples: int) -> float:
    """Seconds of CPU for one, among all processes of this machine."""
    others = [subprocess.Popen(["sleep", "600"]) for _ in range(16)]
    given: list[dict[str, float]] = []
    try:
        before = usage.read(has_own_cgroup=False)

        def sample() -> None:
            for _ in range(num_samples):
                now = usage.read(has_own_cgroup=False)
                given.append(usage.figures(before, now, has_own_network=False))

        return _cpu_seconds(sample) / num_samples
    finally:
        for other in others:
            other.kill()
            other.wait()


def _measure_loop(num_blocks: int) -> tuple[float, float]:
    """Seconds of CPU per step, bare and ours: medians of blocks in turn."""
    work, steps = _work_of(STEP_SECONDS), 25
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(num_blocks):
        bare.append(_cpu_seconds(lambda: [work() for _ in range(steps)]) / steps)
        with drivetrain.run(max_steps=steps + 1) as run:
            loop = _begin_training(run)

            def train(run: drivetrain.Run = run, loop: Iterator[int] = loop) -> None:
                for _ in loop:
                    run.log(loss=work(), learning_rate=0.1)

            ours.append(_cpu_seconds(train) / steps)
    return statistics.median(bare), statistics.median(ours)


def _begin_training(run: drivetrain.Run) -> Iterator[int]:
    """The steps after the first, at which the run is described once."""
    loop = run.steps()
    next(loop)
    run._description.close(10)
    return loop


def _work_of(seconds: float) -> Callable[[], torch.Tensor]:
    """Something that a step could do, of about the given length."""
    matrix = torch.randn(256, 256)

    def work(times: int) -> torch.Tensor:
        value = matrix
        for _ in range(times):
            value = torch.tanh(value @ matrix)
        return value.mean()

    times, took = 10, 0.0
    while took < seconds / 2:
        times *= 2
        took = min(_cpu_seconds(partial(work, times)) for _ in range(3))  # the first one warms up
    return partial(work, round(times * seconds / took))


def _cpu_seconds(act: Callable[[], object]) -> float:
    before = time.process_time()
    act()
    return time.process_time() - before


@contextmanager
def _as_in_a_pod(directory: Path) -> Iterator[None]:
    """The environment of a rank, and a process that answers as its shim."""
    job_id = job_id_for("default", "sdk_cost")
    create_storage(directory)
    variables = {
        "TENANT_ID": "default",
        "JOB_ID": job_id,
        "RUN_ID": run_id_for(job_id, 1),
        "ATTEMPT": "1",
        "FENCE": "1",
        "POD_DIRECTORY": str(directory),
        "CONTROL_SOCKET": str(directory / "control.sock"),
        "OBJECT_STORE_URL": directory.as_uri(),
        "CHECKPOINT_URL": f"{directory.as_uri()}/checkpoints",
        "JOB_SPEC": '{"name": "sdk-cost", "command": ["true"]}',
    }
    os.environ.update({f"DRIVETRAIN_{name}": value for name, value in variables.items()})
    shim = subprocess.Popen(
        [sys.executable, "-c", "from benchmarks.sdk_cost import answer; answer()"]
    )
    try:
        while not (directory / "control.sock").exists():
            time.sleep(0.05)
        yield
    finally:
        shim.kill()
        shim.wait()


def answer() -> None:
    """Acknowledge every batch at once."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            message = msgspec.json.decode(line)
            if message["t"] == "samples":
                ack = Ack(message["run_id"], message["session"], message["batch"])
                writer.write(encode_line(ack))
        writer.close()

    async def listen() -> None:
        listener = control.listen(os.environ["DRIVETRAIN_CONTROL_SOCKET"])
        server = await asyncio.start_unix_server(serve, sock=listener, limit=control.MAX_LINE_BYTES)
        await server.serve_forever()

    asyncio.run(listen())


if __name__ == "__main__":
    main()
