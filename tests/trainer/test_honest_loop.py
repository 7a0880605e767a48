"""A script that does something unusual gets what its user expects, or is told that it cannot."""

import json
import logging
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy
import pytest
import torch

import drivetrain
from drivetrain import seeding
from drivetrain.samples import LastAndBest
from tests.trainer.ranks import train
from tests.trainer.test_run import State, in_a_directory, samples, saved, wait_for_saves

__all__ = ["in_a_directory"]  # used by every test


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "drivetrain")
    return caplog


class TestAStopThatTheScriptSwallows:
    def interrupted(self, train) -> State:
        """Runs `train` until it is interrupted; the state that was saved."""
        with pytest.raises(SystemExit) as end:
            train()
        assert end.value.code == 75
        assert not Path("runs/script/1/result.json").exists()
        restored = State()
        with drivetrain.run(max_steps=100) as run:
            assert run.resume(state=restored)
            assert run.step == 3
        return restored

    def stop_at_step_3(self, run: drivetrain.Run, state: State) -> None:
        for number in run.steps():
            state.value = number
            if number == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    def test_ends_the_run_as_interrupted_with_the_state_of_that_step(self, log) -> None:
        def train() -> None:
            state = State()
            with drivetrain.run(max_steps=100) as run:
                run.resume(state=state)
                try:
                    self.stop_at_step_3(run, state)
                except:  # noqa: E722 - as scripts do
                    state.value = "changed for the evaluation"

        assert self.interrupted(train).value == 3
        assert "the script caught the request to stop and went on" in log.text

    def test_is_raised_again_by_every_further_step(self) -> None:
        caught = []

        def train() -> None:
            state = State()
            with drivetrain.run(max_steps=100) as run:
                run.resume(state=state)
                steps = iter(run.steps())
                epochs = run.epochs(5)
                while run.step < 90 and len(caught) < 6:
                    act = [lambda: next(steps), run.advance, lambda: next(epochs)][len(caught) % 3]
                    try:
                        state.value = next(steps) if not caught else act()
                        if run.step == 3:
                            os.kill(os.getpid(), signal.SIGTERM)
                    except BaseException as error:
                        caught.append(type(error))

        assert self.interrupted(train).value == 3
        assert caught == [drivetrain.Interrupted] * 6

    def test_does_not_become_the_error_that_follows(self, log) -> None:
        def train() -> None:
            state = State()
            with drivetrain.run(max_steps=100) as run:
                run.resume(state=state)
                try:
                    self.stop_at_step_3(run, state)
                finally:
                    raise ValueError("the model is not trained")

        self.interrupted(train)
        assert "went on to ValueError: the model is not trained" in log.text


@pytest.mark.parametrize("length", [5, 7])
def test_steps_are_saved_although_every_pass_ends_by_break(length: int) -> None:
    """With checkpoints every 5 steps, each is due at the step of a `break`, or two before one."""
    with drivetrain.run(checkpoint_every_steps=5) as run:
        run.resume(state=State())
        for epoch in run.epochs(8):
            for _ in epoch.steps(range(100)):
                wait_for_saves(run)
                if run.step % length == 0:
                    break
            run.log(score=run.step)
            wait_for_saves(run)
        wait_for_saves(run)
        assert len(saved()) >= 3  # of which a local run keeps so many
        assert max(saved()) >= 8 * length - 5


@pytest.mark.parametrize("code", [None, 0])
def test_leaving_by_sys_exit_completes_the_run(code) -> None:
    state = State()

    def train() -> None:
        with drivetrain.run(max_steps=100) as run:
            run.resume(state=state)
            for number in run.steps():
                state.value = number
                if number == 3:
                    sys.exit(code)

    with pytest.raises(SystemExit) as end:
        train()
    assert end.value.code == code
    assert json.loads(Path("runs/script/1/result.json").read_text())["step"] == 3
    assert list(saved()) == [3]


def test_leaving_by_sys_exit_with_an_error_writes_nothing() -> None:
    def train() -> None:
        with drivetrain.run(max_steps=100) as run:
            run.resume(state=State())
            next(run.steps())
            sys.exit("no data")

    with pytest.raises(SystemExit):
        train()
    assert not Path("runs/script/1/result.json").exists()
    assert saved() == {}


def test_a_run_without_resume_says_that_nothing_is_saved(log) -> None:
    with drivetrain.run(max_steps=3) as run:
        assert len(list(run.steps())) == 3
    assert log.text.count("no checkpoint will be written") == 1
    assert "run.resume(model=model" in log.text


@pytest.mark.parametrize("use", ["steps", "epochs", "advance", "log"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_run_outside_of_its_block_is_refused(use: str, is_after: bool) -> None:
    run = drivetrain.run(max_steps=3)
    if is_after:
        with run:
            assert len(list(run.steps())) == 3
    act = {
        "steps": run.steps,
        "epochs": lambda: run.epochs(2),
        "advance": run.advance,
        "log": lambda: run.log(loss=1.0),
    }[use]
    with pytest.raises(drivetrain.DrivetrainError, match="around the loop"):
        act()


@pytest.mark.parametrize("accumulate", [None, 2])
def test_a_step_that_would_be_counted_twice_is_refused(accumulate) -> None:
    def advance() -> None:
        with drivetrain.run() as run:
            for epoch in run.epochs(2):
                for _ in epoch.steps([1, 2, 3], accumulate):
                    run.advance()

    def validate() -> None:
        with drivetrain.run(max_steps=9) as run:
            for _ in run.steps([1, 2, 3]):
                list(run.steps([4, 5]))

    with pytest.raises(drivetrain.DrivetrainError, match="count this step twice"):
        advance()
    with pytest.raises(drivetrain.DrivetrainError, match="count as a training step"):
        validate()


def test_a_break_or_an_error_ends_a_step() -> None:
    with drivetrain.run(max_steps=9) as run:
        run.resume(state=State())
        for _ in run.steps():
            break
        try:
            for number in run.steps():
                print(1 / (number - 2))
        except ZeroDivisionError:
            run.advance()
        assert run.step == 3
        assert list(run.steps()) == [4, 5, 6, 7, 8, 9]


def test_resume_within_the_loop_is_refused() -> None:
    def train() -> None:
        with drivetrain.run(max_steps=3) as run:
            for _ in run.steps():
                run.resume(state=State())

    with pytest.raises(drivetrain.DrivetrainError, match="comes before the loop"):
        train()


def test_a_step_among_the_values_is_told(log) -> None:
    with drivetrain.run(max_steps=3) as run:
        for number in run.steps():
            run.log({"loss": 1.0}, step=number)
    assert log.text.count("logs a metric named step") == 1


def test_a_run_without_a_step_is_told(log) -> None:
    with drivetrain.run() as run:
        run.resume(state=State())
        for _ in range(10):
            pass
    assert log.text.count("the run ends without a step") == 1


def test_a_metric_of_the_job_without_a_value_is_told(log, monkeypatch) -> None:
    monkeypatch.setattr(
        "drivetrain.preparation.make_last_and_best", lambda environment: LastAndBest("accuracy")
    )
    with drivetrain.run(max_steps=1) as run:
        for _ in run.steps():
            run.log(acc=0.5)
    assert "metric 'accuracy' has no value; the program has logged 'acc'" in log.text


@pytest.mark.parametrize("times", [2, 24])
def test_a_loop_that_logs_and_never_steps_is_told(times, log) -> None:
    with drivetrain.run() as run:
        for number in range(times):
            run.log(loss=1 / (1 + number))
    assert log.text.count("again and again at step 0") == 1


@pytest.mark.parametrize("is_logged_first", [True, False])
def test_in_a_loop_with_advance_values_belong_to_the_step_just_trained(
    is_logged_first, log
) -> None:
    weights = torch.zeros(())
    with drivetrain.run() as run:
        for number in range(1, 7):
            weights += 1
            if is_logged_first:
                run.log(loss=weights)
            run.advance()
            if not is_logged_first:
                run.log(loss=weights)
            if number % 3 == 0:
                run.log(validation=weights)
    logged = samples(Path("runs/script/1"))
    assert logged["loss"] == {step: float(step) for step in range(1, 7)}
    assert logged["validation"] == {3: 3.0, 6: 6.0}
    assert "step 0" not in log.text.replace("begins at step 0", "")


@pytest.mark.heavy
def test_values_of_the_last_step_arrive_although_it_ends_by_a_stop(tmp_path: Path) -> None:
    """They are logged after `advance()`, in which the checkpoint is written."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for directory in (whole, stopped):
        directory.mkdir()
    assert train("logs_after.py", whole, 2, STOP_AT=0).exit_codes == (0, 0)
    ended = train("logs_after.py", stopped, 2, STOP_AT=3)
    assert ended.exit_codes == (75, 75), ended.output
    assert "caught the request to stop" not in ended.output
    ended = train("logs_after.py", stopped, 2, STOP_AT=0)
    assert "resumed at step" in ended.output
    found, wanted = (samples(one / "runs/logs_after/1")["loss"] for one in (stopped, whole))
    assert len(wanted) == 6
    assert found == wanted


def test_the_position_in_a_pass_continues_after_a_resume() -> None:
    positions: list[tuple[int, int]] = []

    def train(stop_at: int) -> None:
        with drivetrain.run() as run:
            run.resume(state=State())
            for epoch in run.epochs(2):
                for number in epoch.steps(range(4)):
                    positions.append((number, epoch.position))
                    if len(positions) == stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        train(6)
    train(0)
    assert positions == [(number, number) for number in (0, 1, 2, 3, 0, 1, 2, 3)]


def draw() -> list[float]:
    return [random.random(), float(numpy.random.rand()), torch.rand(()).item()]


def seed_torch_and_python_before_the_import() -> None:
    torch.manual_seed(42)
    random.seed(42)
    seeding.remember()  # as the import of drivetrain does


def seed_each() -> None:
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)


class TestSeeds:
    @pytest.mark.parametrize(
        ("script", "seed", "drawn_from"),
        [
            (lambda: None, None, (0, 0, 0, 0)),
            (lambda: None, 5, (5, 5, 5, 5)),
            (lambda: torch.manual_seed(42), None, (42, 42, 42, 42)),
            (seed_each, None, (1, 2, 3, 3)),
            (lambda: numpy.random.seed(2), 7, (7, 2, 7, 7)),
            (draw, None, (0, 0, 0, 0)),
            (seed_torch_and_python_before_the_import, None, (42, 42, 42, 42)),
        ],
    )
    def test_what_the_script_seeds_itself_keeps_its_numbers(
        self, script, seed, drawn_from, log
    ) -> None:
        seeding.renew()  # pytest has seeded some of them
        script()
        with drivetrain.run(seed=seed) as run:
            drawn = draw()
        random.seed(drawn_from[0])
        numpy.random.seed(drawn_from[1])
        torch.manual_seed(drawn_from[2])
        assert drawn == draw()
        assert run.seed == drawn_from[3]
        assert f"seed {run.seed}" in log.text

    @pytest.mark.parametrize("is_before", [True, False])
    def test_the_result_says_what_was_used(self, is_before: bool) -> None:
        seeding.renew()
        for at in (2, 0):  # stopped, and continued
            if is_before:
                torch.manual_seed(42)
            with suppress(SystemExit), drivetrain.run(seed=5, max_steps=3) as run:
                random.sample(range(100_000), 90_000)
                if not is_before:
                    torch.manual_seed(42)
                run.resume(state=State())
                for number in run.steps():
                    if number == at:
                        os.kill(os.getpid(), signal.SIGTERM)
        used = json.loads(Path("runs/script/1/result.json").read_text())["seed"]
        assert used == {"number": 5, "by_script": ["torch"]}

    def test_the_numbers_of_python_are_not_taken_for_the_scripts(self) -> None:
        """The run seeds Python's generator with the script's seed of torch."""
        seeding.renew()
        torch.manual_seed(42)
        ranks = []
        for rank in (0, 1):
            seeds = seeding.Seeds(None, share=lambda seed: seed)
            seeds.part(rank)
            assert (seeds.seed, seeds.by_script) == (42, ["torch"])
            ranks.append(random.random())
        assert ranks[0] != ranks[1]

    def test_a_second_run_in_one_process_is_seeded_again(self) -> None:
        seeding.renew()
        with drivetrain.run(seed=3):
            first = draw()
        with drivetrain.run(seed=3) as run:
            assert draw() == first
            assert run.seed == 3


def test_draws_at_the_top_of_an_epoch_are_the_same_after_a_resume() -> None:
    def train(stop_at: int) -> list[tuple[int, float]]:
        drawn = []
        with drivetrain.run() as run:
            run.resume(state=State())
            for epoch in run.epochs(3):
                order = random.sample(range(4), 4)
                for number in epoch.steps(order):
                    drawn.append((number, torch.rand(()).item()))
                    if run.step == stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)
        return drawn

    seeding.renew()
    whole = train(0)
    for stop_at in (2, 4, 7, 8, 9):
        seeding.renew()
        with pytest.raises(SystemExit):
            train(stop_at)
        assert train(0) == whole[stop_at:]


def test_options_of_data_parallelism_are_passed_on(monkeypatch) -> None:
    replica = None

    def wrap(module, **options):
        nonlocal replica
        replica = options
        return module

    monkeypatch.setattr("torch.nn.parallel.DistributedDataParallel", wrap)
    with drivetrain.run(max_steps=1) as run:
        monkeypatch.setattr(run._world, "size", 2)
        run.parallel(torch.nn.Linear(1, 1), find_unused_parameters=True)
        monkeypatch.setattr(run._world, "size", 1)
    assert replica is not None
    assert replica["find_unused_parameters"] is True


@pytest.mark.parametrize("accumulate", [None, 2])
def test_a_generator_that_is_used_up_is_named(accumulate) -> None:
    batches = (number for number in range(4))

    def train() -> None:
        with drivetrain.run() as run:
            for epoch in run.epochs(2):
                list(epoch.steps(batches, accumulate))

    with pytest.raises(drivetrain.DrivetrainError, match=r"a generator .* can be read only once"):
        train()
