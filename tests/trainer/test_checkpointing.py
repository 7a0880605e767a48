"""What one rank's checkpointer writes, and when it writes nothing."""

import math
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import drivetrain
from drivetrain import checkpointing, started
from drivetrain import environment as environments
from drivetrain.checkpointing import Checkpointer
from drivetrain.errors import NotStorable
from drivetrain.held_state import Moment
from drivetrain.messages import StepProgress
from drivetrain.parallel import World
from drivetrain.reporting import FileSink, Reporter
from drivetrain.samples import LastAndBest
from drivetrain.storage import MarkedStorage, create_storage


class OneOfTwo(World):
    """Rank 1, whose other rank wants and does the same."""

    def __init__(self) -> None:
        super().__init__(environments.read({}))
        self.rank = 1


@pytest.fixture
def storage(tmp_path: Path) -> MarkedStorage:
    return create_storage(tmp_path / "run")


def make(storage: MarkedStorage, directory: Path, world: World | None = None) -> Checkpointer:
    environment = environments.in_directory(environments.read({}), directory, 1)
    sink = FileSink(directory / "samples.jsonl")
    reporter = Reporter(environment, sink, LastAndBest(), StepProgress)
    return Checkpointer(environment, world or World(environment), reporter, storage)


def manifests_of(storage: MarkedStorage) -> list[str]:
    return [key for key in storage.list() if key.endswith("manifest.json")]


def test_a_state_that_was_saved_is_not_written_again_at_the_end(storage, tmp_path) -> None:
    model = nn.Linear(3, 3)
    checkpointer = make(storage, tmp_path)
    checkpointer.hold({"model": model})
    checkpointer.begin(Moment(10))
    checkpointer.finish(Moment(10), 60)
    assert len(manifests_of(storage)) == 1

    with torch.no_grad():
        model.weight.data.mul_(2)  # not seen by torch's own counter of versions
    checkpointer.finish(Moment(10), 60)

    assert len(manifests_of(storage)) == 2
    other = nn.Linear(3, 3)
    restorer = make(storage, tmp_path)
    restorer.hold({"model": other})
    assert restorer.restore() == Moment(10)
    assert torch.equal(other.weight, model.weight)


def test_a_background_save_holds_the_weights_of_its_step(storage, tmp_path, monkeypatch) -> None:
    may_write = threading.Event()
    put_pieces = MarkedStorage.put_pieces

    def wait_and_put(self, *arguments) -> None:
        assert may_write.wait(60)
        put_pieces(self, *arguments)

    monkeypatch.setattr(MarkedStorage, "put_pieces", wait_and_put)
    model = nn.Linear(3, 3)
    wanted = model.weight.detach().clone()
    checkpointer = make(storage, tmp_path)
    checkpointer.hold({"model": model})
    checkpointer.begin(Moment(10))
    with torch.no_grad():
        model.weight.zero_()
    may_write.set()
    checkpointer._writer.join()

    other = nn.Linear(3, 3)
    restorer = make(storage, tmp_path)
    restorer.hold({"model": other})
    assert restorer.restore() == Moment(10)
    assert torch.equal(other.weight, wanted)


def test_all_waits_at_the_end_share_one_deadline(storage, tmp_path, monkeypatch) -> None:
    """A save in the background that never ends must not delay rank 1 past the kill."""
    waited = []

    class Endless(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            waited.append(timeout)

    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: 1000.0 + math.fsum(waited))
    checkpointer = make(storage, tmp_path, OneOfTwo())
    checkpointer._writer = Endless()
    checkpointer.finish(Moment(10), 20)
    assert math.fsum(waited) == 20


class State:
    """Tensors, kept as they are loaded, as an optimizer does."""

    def __init__(self, size_bytes: int) -> None:
        self.tensors = {str(n): torch.ones(size_bytes // 16 // 4) for n in range(16)}

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.tensors

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.tensors = state


def peak_of(act: Callable[[], object]) -> int:
    """The most memory that was used above what is used now, in bytes."""

    def memory(name: str) -> int:
        (line,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(line) * 1024

    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    act()
    return memory("VmHWM") - before


def test_no_save_and_no_resume_copies_the_whole_state_more_than_once(storage, tmp_path) -> None:
    size = 192 * 2**20
    checkpointer = make(storage, tmp_path)
    checkpointer.hold({"state": State(size)})

    def save_in_the_background() -> None:
        checkpointer.begin(Moment(1))
        checkpointer._writer.join()

    assert peak_of(lambda: checkpointer.finish(Moment(0), 60)) < 0.3 * size
    assert peak_of(save_in_the_background) < 1.3 * size
    restorer = make(storage, tmp_path)
    restorer.hold({"state": State(0)})
    assert peak_of(restorer.restore) < 1.3 * size


class Counter:
    """Its state cannot be stored after its first step, like that of some optimizers."""

    def __init__(self, first: object, later: object) -> None:
        self._state, self._later = first, later

    def state_dict(self) -> dict[str, object]:
        return {"moments": self._state}

    def load_state_dict(self, state: dict[str, object]) -> None:
        raise NotImplementedError

    def step(self) -> None:
        self._state = self._later


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(started._known, "directory", tmp_path)
    for name in ("RANK", "WORLD_SIZE", "DRIVETRAIN_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sharded() -> Iterator[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield distribute_tensor(torch.zeros(4), init_device_mesh("cpu", (1,)))
    dist.destroy_process_group()


@pytest.mark.usefixtures("local")
def test_a_sharded_model_is_refused_before_training_with_the_fix(sharded) -> None:
    with drivetrain.run(max_steps=3) as run:
        with pytest.raises(NotStorable, match=r"counter\.moments: it is a DTensor.*DDP"):
            run.resume(counter=Counter(sharded, sharded))
        run.max_steps = 0


@pytest.mark.usefixtures("local")
def test_state_of_the_first_step_is_refused_after_it_and_not_at_the_end() -> None:
    scales = torch.zeros(2, dtype=torch.float8_e8m0fnu)
    with pytest.raises(NotStorable, match=r"counter\.moments: .*float8_e8m0fnu.*uint8"):
        train(Counter(torch.zeros(2), scales))


def train(counter: Counter) -> None:
    with drivetrain.run(max_steps=100) as run:
        run.resume(counter=counter)
        for _ in run.steps():
            assert run.step == 1
            counter.step()
