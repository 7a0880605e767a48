"""The cost of a checkpoint: time and memory, against `torch.save` and a plain write.

The same state is saved in turn: by the SDK at the end of a run, by the SDK in the background, by
`torch.save` and fsync, and as plain bytes with fsync. Memory is the peak of the process above what
it held before, as a multiple of the state. Then it is restored, by the SDK (with every hash
verified) and by `torch.load`.
"""

import gc
import hashlib
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Row, options, publish
from drivetrain import environment as environments
from drivetrain.checkpointing import Checkpointer
from drivetrain.held_state import Moment
from drivetrain.messages import StepProgress
from drivetrain.parallel import World
from drivetrain.reporting import FileSink, Reporter
from drivetrain.samples import LastAndBest
from drivetrain.storage import create_storage
from drivetrain_schemas.jobs import JobSpec

TITLE = "A checkpoint"
MEASURES = (
    "trainer/drivetrain/checkpointing.py",
    "trainer/drivetrain/directory_storage.py",
    "trainer/drivetrain/hashing.py",
    "trainer/drivetrain/held_state.py",
    "trainer/drivetrain/loading.py",
    "trainer/drivetrain/manifests.py",
    "trainer/drivetrain/restoring.py",
    "trainer/drivetrain/storage.py",
    "trainer/drivetrain/tensor_files.py",
    "trainer/drivetrain/tree.py",
)
NOTES = """
One rank with 32 tensors of equal size, into a directory of this machine; median of the times, the
largest peak. Ours hashes every byte as well, in a second thread beside the write. A new file is
written more slowly than memory that another file has just released, so times differ by half
between runs. A resume reads twice: to choose a checkpoint that verifies, and to load it. Where
all cores are busy with other work the hash has no core of its own, and a save takes several times
as long.
"""

NUM_TENSORS = 32


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, of which training was blocked; peak memory in bytes above the state."""

    seconds: float
    blocked_seconds: float
    peak_bytes: int


class State:
    """Tensors, kept as they are loaded, as an optimizer does."""

    def __init__(self, size_bytes: int) -> None:
        numbers = size_bytes // NUM_TENSORS // 4
        self.tensors = {f"{i}.weight": torch.randn(numbers) for i in range(NUM_TENSORS)}

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensors = state


def main() -> None:
    chosen = options("checkpoint_cost", __doc__ or "")
    logging.getLogger("drivetrain").addFilter(lambda record: record.levelno > logging.INFO)
    size = (16 if chosen.quick else 256) * 2**20
    rounds = 1 if chosen.quick else 8
    with tempfile.TemporaryDirectory() as directory:
        costs = _measure(State(size), Path(directory), rounds)
    publish(_rows(costs, size), chosen, ("torch",))


def _measure(state: State, directory: Path, rounds: int) -> dict[str, Cost]:
    bench = _Bench(state, directory)
    saves: dict[str, Callable[[], float]] = {
        "plain": bench.write_plainly,
        "torch.save": bench.save_with_torch,
        "final": bench.save_at_the_end,
        "background": bench.save_in_the_background,
    }
    loads: dict[str, Callable[[], float]] = {
        "torch.load": bench.load_with_torch,
        "restore": bench.restore,
    }
    found: dict[str, list[Cost]] = {name: [] for name in saves | loads}
    order = list(saves)
    for _ in range(rounds):
        bench.start_round()
        for name in (*order, *loads):
            found[name].append(_cost_of((saves | loads)[name]))
        order.append(order.pop(0))  # each comes first in turn: a write is slower after another
    return {name: _median(costs) for name, costs in found.items()}


class _Bench:
    """One state and what is done with it. Each act returns the seconds that block training."""

    def __init__(self, state: State, directory: Path) -> None:
        self._state = state
        self._directory = directory
        self._step = 0

    def write_plainly(self) -> float:
        path = self._new_file("plain")
        started = time.monotonic()
        with path.open("wb") as file:
            for tensor in self._state.tensors.values():
                file.write(tensor.numpy().data)
            file.flush()
            os.fsync(file.fileno())
        return time.monotonic() - started

    def save_with_torch(self) -> float:
        path = self._new_file("torch")
        started = time.monotonic()
        with path.open("wb") as file:
            torch.save(self._state.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        return time.monotonic() - started

    def load_with_torch(self) -> float:
        path = self._directory / f"torch-{self._step}"
        started = time.monotonic()
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
        _Receiver().load_state_dict(torch.load(path))
        return time.monotonic() - started

    def save_at_the_end(self) -> float:
        checkpointer = self._checkpointer(self._state)
        started = time.monotonic()
        checkpointer.finish(Moment(2 * self._step), 600)
        return time.monotonic() - started

    def save_in_the_background(self) -> float:
        checkpointer = self._checkpointer(self._state)
        started = time.monotonic()
        checkpointer.begin(Moment(2 * self._step + 1))
        blocked = time.monotonic() - started
        while checkpointer.is_saving:
            time.sleep(0.001)
        return blocked

    def restore(self) -> float:
        checkpointer = self._checkpointer(_Receiver())
        started = time.monotonic()
        assert checkpointer.restore() is not None
        return time.monotonic() - started

    def start_round(self) -> None:
        self._step += 1

    def _new_file(self, name: str) -> Path:
        """Nothing is deleted meanwhile: pages released by another file would be written faster."""
        return self._directory / f"{name}-{self._step}"

    def _checkpointer(self, thing: object) -> Checkpointer:
        local = environments.in_directory(environments.read({}), self._directory, 1)
        local = replace(local, job=JobSpec(name="cost", command=("true",)))  # it keeps them all
        sink = FileSink(self._directory / "samples.jsonl")
        reporter = Reporter(local, sink, LastAndBest(), StepProgress)
        storage = create_storage(self._directory / "store")
        checkpointer = Checkpointer(local, World(local), reporter, storage)
        checkpointer.hold({"state": thing})
        return checkpointer


class _Receiver(State):
    def __init__(self) -> None:
        self.tensors = {}


def _cost_of(act: Callable[[], float]) -> Cost:
    gc.collect()
    os.sync()
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts at what is held now
    started = time.monotonic()
    blocked = act()
    return Cost(time.monotonic() - started, blocked, _memory("VmHWM") - before)


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.seconds for cost in costs),
        statistics.median(cost.blocked_seconds for cost in costs),
        max(cost.peak_bytes for cost in costs),
    )


def _rows(costs: dict[str, Cost], size: int) -> list[Row]:
    plain, torch_save = costs["plain"].seconds, costs["torch.save"].seconds
    final, background = costs["final"], costs["background"]
    label = f"{size // 2**20} MiB"
    return [
        _time("final", f"final save of {label}", final.seconds, plain, "plain write, fsync", 1.2),
        _time("final_torch", "the same", final.seconds, torch_save, "torch.save, fsync", 1.0),
        _time(
            "blocked",
            "training blocked by a save in the background",
            background.blocked_seconds,
            torch_save,
            "torch.save, fsync",
            0.5,
        ),
        _time(
            "background",
            "a save in the background, in total",
            background.seconds,
            torch_save,
            "torch.save, fsync",
            1.5,
        ),
        _time(
            "restore",
            "restored and verified",
            costs["restore"].seconds,
            costs["torch.load"].seconds,
            "SHA-256, torch.load",
            2.0,
        ),
        _peak("final", costs, "torch.save", size, 0.3),
        _peak("background", costs, "torch.save", size, 1.3),
        _peak("restore", costs, "torch.load", size, 1.3),
    ]


def _time(id_: str, what: str, ours: float, peer: float, name: str, most: float) -> Row:
    return Row(
        id=f"checkpoint_cost.{id_}",
        what=what,
        ours=f"{ours:.2f} s",
        peer=f"{peer:.2f} s ({name})",
        ratio=ours / peer,
        target=f"at most {most}",
        met=ours / peer <= most,
    )


def _peak(name: str, costs: dict[str, Cost], peer: str, size: int, most: float) -> Row:
    ours, theirs = costs[name].peak_bytes / size, costs[peer].peak_bytes / size
    return Row(
        id=f"checkpoint_cost.peak_{name}",
        what=f"{name}: peak memory above the state itself",
        ours=f"{ours:.2f} x the state",
        peer=f"{theirs:.2f} x ({peer})",
        ratio=ours,
        target=f"ours at most {most} x",
        met=ours <= most,
    )


if __name__ == "__main__":
    main()
