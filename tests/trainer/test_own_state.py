"""Values that a script keeps itself are the same after a resume as without a stop."""

import math
import signal
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

import drivetrain
from drivetrain import checkpointing, held_state
from drivetrain.held_state import HeldState, Moment, Stored
from drivetrain.parallel import World
from tests.trainer.test_honest_loop import log
from tests.trainer.test_run import State, in_a_directory

__all__ = ["in_a_directory", "log"]

Report = list[tuple[int, float, int, float]]


def train(stop_at: int = 0, starts_between: int = 0) -> tuple[list[float], Report]:
    """The losses of all steps, and for each epoch its mean loss and its number of batches."""
    with drivetrain.run(checkpoint_every_steps=2) as run:
        run.resume(thing=State())
        kept = run.state(losses=[], report=[], best=math.inf, last=deque(maxlen=2))
        for epoch in run.epochs(3):
            sums = epoch.state(loss=0.0, batches=0, squares=torch.zeros(2))
            for number in epoch.steps(range(4)):
                loss = 1 / (1 + number + epoch.index)
                kept.losses.append(loss)
                kept.last.append(loss)
                sums.loss += loss
                sums.squares += loss**2
                sums.batches += 1
                if run.step == stop_at:
                    signal.raise_signal(signal.SIGTERM)
            mean = sums.loss / sums.batches
            kept.best = min(kept.best, mean)
            kept.report.append((epoch.index, mean, sums.batches, sums.squares.sum().item()))
        assert list(kept.last) == kept.losses[-2:]
        assert kept.best == min(mean for _, mean, *_ in kept.report)
    return kept.losses, kept.report


@pytest.mark.parametrize("stops", [(2,), (4,), (5,), (6, 7), (1, 12)])
def test_lists_and_sums_go_on_after_a_resume(stops: tuple[int, ...]) -> None:
    """In the middle of an epoch, after its last step, and several times."""
    whole = train()
    assert [batches for *_, batches, _ in whole[1]] == [4, 4, 4]
    for stop in stops:
        with pytest.raises(SystemExit):
            train(stop)
    assert train() == whole


def test_a_script_without_any_other_state_is_saved_too() -> None:
    def count(stop_at: int = 0) -> int:
        with drivetrain.run(max_steps=5) as run:
            run.resume()
            kept = run.state(number=0)
            for step in run.steps():
                kept.number += 1
                if step == stop_at:
                    signal.raise_signal(signal.SIGTERM)
        return kept.number

    with pytest.raises(SystemExit):
        count(3)
    assert count() == 5
    assert any(Path("runs/script/1/checkpoints").iterdir())


def test_state_before_resume_is_refused() -> None:
    with (
        pytest.raises(drivetrain.DrivetrainError, match=r"comes after run\.resume"),
        drivetrain.run(max_steps=3) as run,
    ):
        run.state(losses=[])


def test_what_cannot_be_kept_is_refused_after_the_first_step() -> None:
    def run_with_a_set() -> None:
        with drivetrain.run(max_steps=9) as run:
            run.resume(thing=State())
            run.state(seen=set())
            for step in run.steps():
                assert step == 1

    with pytest.raises(drivetrain.NotStorable, match=r"run\.state\.seen: .* builtins\.set"):
        run_with_a_set()


def test_more_than_a_checkpoint_keeps_is_refused_after_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_with_a_long_list() -> None:
        with drivetrain.run(max_steps=9) as run:
            run.resume(thing=State())
            run.state(losses=[0.123] * 3000, of_any_size=torch.zeros(30_000))
            for step in run.steps():
                assert step == 1

    monkeypatch.setattr(held_state, "MAX_STATE_BYTES", 20_000)
    with pytest.raises(drivetrain.NotStorable, match=r"holds more than"):
        run_with_a_long_list()


def test_a_run_whose_lists_grow_too_long_is_warned_and_keeps_them(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    def run_with_a_list_that_grows(stop_at: int = 0) -> list[float]:
        with drivetrain.run(max_steps=9, checkpoint_every_steps=2) as run:
            run.resume(thing=State())
            kept = run.state(losses=[])
            for step in run.steps():
                kept.losses += [step / 8] * 1000
                if step == stop_at:
                    signal.raise_signal(signal.SIGTERM)
        return list(kept.losses)

    for module in (held_state, checkpointing):
        monkeypatch.setattr(module, "MAX_STATE_BYTES", 20_000)
    with pytest.raises(SystemExit):
        run_with_a_list_that_grows(7)
    assert log.text.count("run.state holds more than 16 MiB") == 1
    assert run_with_a_list_that_grows() == [step / 8 for step in range(1, 10) for _ in range(1000)]


def test_a_tree_is_as_deep_after_a_resume_as_it_was_saved() -> None:
    def run_with_a_chain(stop_at: int = 0) -> Any:
        with drivetrain.run(max_steps=420) as run:
            run.resume(thing=State())
            kept = run.state(chain=None)
            for step in run.steps():
                kept.chain = (step, kept.chain)
                if step == stop_at:
                    signal.raise_signal(signal.SIGTERM)
        return kept.chain

    with pytest.raises(SystemExit):
        run_with_a_chain(410)
    chain, steps = run_with_a_chain(), []
    while chain is not None:
        step, chain = chain
        steps.append(step)
    assert steps == list(range(420, 0, -1))


@pytest.mark.parametrize("keeps", [False, True])
def test_a_resume_within_a_pass_says_what_begins_again(
    keeps: bool,
    log: pytest.LogCaptureFixture,
) -> None:
    """Not to a script that keeps something of its own, nor at the top of a pass."""

    def run_until(stop_at: int) -> None:
        model = torch.nn.Linear(1, 1)
        with drivetrain.run() as run:
            run.resume(model=model)
            for epoch in run.epochs(2):
                if keeps:
                    epoch.state(total=0)
                for _ in epoch.steps(range(4)):
                    if run.step == stop_at:
                        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        run_until(6)
    assert "sums in variables begin again" not in log.text
    run_until(0)
    assert ("sums in variables begin again" in log.text) != keeps


def test_tensors_of_a_device_are_restored_to_it() -> None:
    """No device but the one without values is everywhere."""
    world = World.__new__(World)
    world.rank, world._device = 0, torch.device("meta")
    document = {
        "step": 1,
        "epoch": 0,
        "batches": 0,
        "things": {},
        "rng": {},
        "loop": {"state": {"total": {"$tensor": "a"}, "other": {"$tensor": "b"}}},
        "on_device": ["a"],
    }
    stored = Stored(document, {"a": torch.ones(2), "b": torch.ones(2)})
    moment: Moment = HeldState(world).load(stored, stored, has_own=False)
    state = moment.loop["state"]
    assert (state["total"].device.type, state["other"].device.type) == ("meta", "cpu")
