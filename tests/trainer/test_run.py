"""`drivetrain.run` in one process: the loop, how it ends, and what it reports."""

import json
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import drivetrain
from drivetrain import started
from drivetrain.storage import create_storage
from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.ids import job_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from tests.trainer.pods import wait_for


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(started._known, "directory", tmp_path)
    monkeypatch.setattr("sys.argv", ["script.py"])


def samples(directory: Path) -> dict[str, dict[int, float]]:
    out: dict[str, dict[int, float]] = {}
    for line in (directory / "samples.jsonl").read_text().splitlines():
        for name, column in json.loads(line)["columns"].items():
            out.setdefault(name, {}).update(zip(column["steps"], column["values"], strict=True))
    return out


class State:
    """An object with a state."""

    def __init__(self, value: object = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, object]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.value = state["value"]


def test_steps_without_a_loader_are_numbers_from_one() -> None:
    with drivetrain.run(max_steps=3) as run:
        assert [(number, run.step) for number in run.steps()] == [(1, 1), (2, 2), (3, 3)]


def test_steps_repeat_the_loader_until_max_steps() -> None:
    with drivetrain.run(max_steps=5) as run:
        assert list(run.steps(["a", "b"])) == ["a", "b", "a", "b", "a"]


def test_steps_need_max_steps_and_data() -> None:
    with (
        pytest.raises(drivetrain.DrivetrainError, match="max_steps"),
        drivetrain.run() as run,
    ):
        run.steps(["a"])
    with (
        pytest.raises(drivetrain.DrivetrainError, match="empty"),
        drivetrain.run(max_steps=3) as run,
    ):
        list(run.steps([]))


def test_epochs_with_accumulation_give_the_rest_of_a_pass_as_well() -> None:
    seen = []
    with drivetrain.run() as run:
        for epoch in run.epochs(2):
            for batches in epoch.steps(range(5), accumulate=2):
                seen.append((run.step, epoch.index, len(batches), list(batches)))
    assert seen == [
        (1, 0, 2, [0, 1]),
        (2, 0, 2, [2, 3]),
        (3, 0, 1, [4]),
        (4, 1, 2, [0, 1]),
        (5, 1, 2, [2, 3]),
        (6, 1, 1, [4]),
    ]


def test_advance_is_the_boundary_of_a_scripts_own_loop() -> None:
    with drivetrain.run(checkpoint_every_steps=2) as run:
        run.resume(state=State())
        for _ in range(5):
            run.advance()
        assert run.step == 5
    assert len(list(Path("runs/script/1/checkpoints").glob("*-s*5-*/manifest.json"))) == 1


def test_a_scripts_own_loop_draws_the_same_numbers_after_a_resume() -> None:
    def train(steps: int) -> list[float]:
        drawn = []
        with drivetrain.run(max_steps=6) as run:
            run.resume(state=State())
            while run.step < run.max_steps:
                drawn.append(torch.rand(1).item())
                if run.step + 1 == steps:
                    os.kill(os.getpid(), signal.SIGTERM)
                run.advance()
        return drawn

    whole = train(0)
    with pytest.raises(SystemExit):
        train(2)
    assert train(0) == whole[2:]


def test_logged_values_keep_their_step_when_the_tensor_changes() -> None:
    total = torch.zeros(())
    with drivetrain.run(max_steps=3) as run:
        for _ in run.steps():
            total += 1
            run.log({"val/total": total}, loss=1 / run.step, whole=7, word="no number")
    logged = samples(Path("runs/script/1"))
    assert logged["val/total"] == {1: 1.0, 2: 2.0, 3: 3.0}
    assert logged["loss"] == {1: 1.0, 2: 0.5, 3: 1 / 3}
    assert logged.keys() == {"val/total", "loss", "whole"}


def train_until_stopped(state: State, at: int = 1, **names: State) -> None:
    with drivetrain.run(max_steps=100) as run:
        run.resume(state=state, **names)
        for number in run.steps():
            state.value = number
            if number == at:
                os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("code after the loop runs only when training is complete")


def test_an_interrupted_run_exits_with_75_and_continues_where_it_stopped() -> None:
    with pytest.raises(SystemExit) as end:
        train_until_stopped(State(), at=40)
    assert end.value.code == 75
    assert not Path("runs/script/1/result.json").exists()

    restored = State()
    with drivetrain.run(max_steps=100) as run:
        assert run.resume(state=restored)
        assert (run.step, restored.value) == (40, 40)
        assert next(iter(run.steps())) == 41


def test_interrupted_passes_through_a_script_that_catches_exceptions() -> None:
    def train() -> None:
        with drivetrain.run(max_steps=100) as run:
            try:
                for _ in run.steps():
                    os.kill(os.getpid(), signal.SIGTERM)
            except Exception:
                pytest.fail("swallowed")

    with pytest.raises(SystemExit):
        train()


def test_an_error_of_the_script_is_raised_and_writes_no_checkpoint() -> None:
    def train() -> None:
        with drivetrain.run(max_steps=10, checkpoint_every_steps=1000) as run:
            run.resume(state=State())
            for number in run.steps():
                run.log(loss=number)
                assert number < 3, "diverged"

    with pytest.raises(AssertionError, match="diverged"):
        train()
    assert not Path("runs/script/1/checkpoints").exists()
    assert samples(Path("runs/script/1"))["loss"] == {1: 1.0, 2: 2.0, 3: 3.0}


def test_a_checkpoint_without_the_named_state_is_refused() -> None:
    with pytest.raises(SystemExit):
        train_until_stopped(State())
    with pytest.raises(drivetrain.CheckpointMismatch, match=r"resume\(average=...\).* holds state"):
        train_until_stopped(State(), average=State())


def test_what_cannot_be_stored_is_refused_with_its_path() -> None:
    def train() -> None:
        with drivetrain.run(max_steps=3) as run:
            run.resume(state=State(lambda: 0))
            pytest.fail("training began")

    with pytest.raises(drivetrain.NotStorable, match=r"state\.value"):
        train()


def test_a_lazy_module_is_stored_once_it_has_shapes() -> None:
    with drivetrain.run(max_steps=1) as run:
        model = run.parallel(torch.nn.LazyLinear(2))
        run.resume(state=model)
        for _ in run.steps():
            model(torch.ones(1, 3))
    assert len(list(Path("runs/script/1/checkpoints").glob("*/manifest.json"))) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_steps": 0}, "max_steps=0: write at least 1"),
        ({"max_steps": -3}, "max_steps=-3: write at least 1"),
        ({"checkpoint_every_steps": 0}, "^checkpoint_every_steps is too small: write 1 or more$"),
        ({"checkpoint_every_minutes": -1.0}, "^checkpoint_every_minutes is too small"),
    ],
)
def test_an_invalid_argument_is_refused_by_its_name(options, words) -> None:
    with pytest.raises(drivetrain.DrivetrainError, match=words):
        drivetrain.run(**options)
    assert not Path("runs").exists()


def test_a_second_pass_over_the_data_of_an_epoch_is_refused() -> None:
    def train() -> None:
        with drivetrain.run() as run:
            for epoch in run.epochs(1):
                assert list(epoch.steps([1, 2, 3])) == [1, 2, 3]
                epoch.steps([4, 5, 6, 7])

    with pytest.raises(drivetrain.DrivetrainError, match="chain the loaders"):
        train()


def test_equal_seeds_give_equal_numbers() -> None:
    drawn = []
    for seed in (1, 1, 2):
        with drivetrain.run(max_steps=1, seed=seed):
            drawn.append(torch.rand(1).item())
    assert drawn[0] == drawn[1] != drawn[2]


def saved(directory: str = "runs/script/1") -> dict[int, tuple[object, dict[str, float]]]:
    """By step: the state in each checkpoint, and the metrics in its manifest."""
    out = {}
    for path in sorted(Path(directory).glob("checkpoints/*/manifest.json")):
        manifest = Manifest.model_validate_json(path.read_bytes())
        document = json.loads((path.parent / "rank-0.json").read_text())
        out[manifest.step] = (document["things"]["state"]["value"], manifest.metrics)
    return out


def wait_for_saves(run: drivetrain.Run) -> None:
    """A save that is still in progress would delay the next one."""
    wait_for(lambda: not run._checkpointer.is_saving, "the save to end")


def test_a_checkpoint_holds_the_metrics_of_its_own_weights_by_steps() -> None:
    state = State()
    with drivetrain.run(max_steps=7, checkpoint_every_steps=2) as run:
        run.resume(state=state)
        for number in run.steps():
            state.value = number
            run.log(loss=number / 10)
            if run.step == 4:
                run.log(score=number / 100)
            wait_for_saves(run)
        run.log(score=0.5)
    assert saved() == {
        4: (4, {"loss": 0.4, "score": 0.04}),
        6: (6, {"loss": 0.6}),
        7: (7, {"loss": 0.7, "score": 0.5}),
    }


@pytest.mark.parametrize("accumulate", [None, 2])
def test_a_checkpoint_holds_the_metrics_of_its_own_weights_by_epochs(accumulate) -> None:
    state = State()
    with drivetrain.run(checkpoint_every_steps=2) as run:
        run.resume(state=state)
        for epoch in run.epochs(3):
            for _ in epoch.steps(range(2 * (accumulate or 1)), accumulate):
                state.value = run.step
                wait_for_saves(run)
            run.log(score=run.step / 100)
    assert saved() == {step: (step, {"score": step / 100}) for step in (2, 4, 6)}


def test_a_stop_after_the_last_step_of_an_epoch_leaves_what_follows_to_the_next_run() -> None:
    followed = []

    def train(stop_at: int) -> None:
        with drivetrain.run(checkpoint_every_steps=2) as run:
            run.resume(state=State())
            for epoch in run.epochs(2):
                for _ in epoch.steps(range(2)):
                    if run.step == stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)
                followed.append(run.step)

    with pytest.raises(SystemExit):
        train(2)
    assert followed == []
    train(0)
    assert followed == [2, 4]


def test_a_range_of_steps_needs_no_number_beside_it() -> None:
    with drivetrain.run() as run:
        run.resume(state=State())
        assert list(run.steps(range(3))) == [0, 1, 2]
        assert (run.step, run.max_steps) == (3, 3)


@pytest.mark.parametrize(("options", "minutes"), [({}, 5), ({"checkpoint_every_minutes": 4.0}, 4)])
def test_a_checkpoint_is_saved_every_so_many_minutes(options, minutes, monkeypatch) -> None:
    clock = Mock(monotonic=Mock(return_value=0.0))
    monkeypatch.setattr("drivetrain.boundary.time", clock)
    with drivetrain.run(max_steps=2 * minutes + 1, **options) as run:
        run.resume(state=State())
        for number in run.steps():
            wait_for_saves(run)
            clock.monotonic.return_value = 60.0 * number
    assert list(saved()) == [1, minutes + 1, 2 * minutes + 1]  # the first one early


class TestInAPod:
    """Only a pod's environment: nothing listens on its socket."""

    @pytest.fixture(autouse=True)
    def pod(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job_id = job_id_for("default", "test")
        self.spec = JobSpec.model_validate(
            {
                "name": "test",
                "command": "true",
                "max_steps": 4,
                "hyperparameters": {"learning_rate": 0.5},
                "metric": {"name": "score", "goal": "maximize"},
            }
        )
        self.directory = tmp_path / "pod"
        self.directory.mkdir()
        create_storage(tmp_path)
        self.set = monkeypatch.setenv
        for name, value in {
            "TENANT_ID": "default",
            "JOB_ID": job_id,
            "RUN_ID": run_id_for(job_id, 1),
            "ATTEMPT": "1",
            "FENCE": "9",
            "POD_DIRECTORY": str(self.directory),
            "CONTROL_SOCKET": str(self.directory / "control.sock"),
            "OBJECT_STORE_URL": tmp_path.as_uri(),
            "CHECKPOINT_URL": f"{tmp_path.as_uri()}/checkpoints/default/{job_id}",
            "JOB_SPEC": self.spec.model_dump_json(),
        }.items():
            monkeypatch.setenv(f"DRIVETRAIN_{name}", value)

    def test_the_job_overrides_and_the_result_is_left_for_the_shim(self, tmp_path: Path) -> None:
        with drivetrain.run(max_steps=9, hyperparameters={"learning_rate": 0.1}) as run:
            assert run.hyperparameters["learning_rate"] == 0.5
            run.resume(state=State())
            for number in run.steps():
                run.log(score=-abs(number - 2), loss=1 / number)
        result = json.loads((self.directory / "result.json").read_text())
        assert result["step"] == 4
        assert result["metrics"] == {"score": -2.0, "loss": 0.25}
        assert result["best"] == {"name": "score", "goal": "maximize", "value": 0.0, "step": 2}
        final = "checkpoints/default/*/f000000000009-s000000000004-*/manifest.json"
        assert len(list(tmp_path.glob(final))) == 1

    def test_a_hyperparameter_the_script_does_not_have_is_refused(self) -> None:
        with pytest.raises(drivetrain.InvalidHyperparameters, match=r"hyperparameters\.learning_r"):
            drivetrain.run(hyperparameters={"rate": 0.1})


def test_reporting_outside_of_a_pod_returns_false() -> None:
    assert drivetrain.report({"loss": 1.0}, step=1) is False


def test_workers_of_the_script_end_when_they_are_terminated() -> None:
    """The first worker is terminated as early as possible, the second one when it runs."""
    context = multiprocessing.get_context("fork")
    with drivetrain.run(max_steps=1):
        for has_begun in (False, True):
            reader, writer = context.Pipe(duplex=False)
            worker = context.Process(target=_say_and_wait, args=(writer,))
            worker.start()
            if has_begun:
                assert reader.recv() == "begun"
            worker.terminate()
            worker.join(timeout=60)
            assert worker.exitcode == -signal.SIGTERM
            reader.close()
            writer.close()
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def _say_and_wait(writer: Connection) -> None:
    writer.send("begun")
    time.sleep(600)
