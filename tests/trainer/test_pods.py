"""Pods without scheduler and Kafka: started cold and warm, killed, and stopped."""

import hashlib
import io
import json
import os
import re
import signal
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from drivetrain_schemas.jobs import Goal
from drivetrain_schemas.pods import PodTrace, StopNotice
from tests.trainer.pods import NO_KAFKA, Pod, wait_for
from tests.trainer.ranks import SCRIPTS

TRAIN = ["python", str(SCRIPTS / "by_steps.py")]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MakePod = Callable[..., Pod]


def shell(line: str) -> list[str]:
    return ["sh", "-c", line]


def code_of(root: Path, **files: str) -> dict[str, str]:
    """An uploaded archive with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "."))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    directory = root / "objects" / "code"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / digest).write_bytes(buffer.getvalue())
    return {"uri": (directory / digest).as_uri(), "sha256": digest}


def test_any_program_is_a_job(make_pod: MakePod) -> None:
    pod = make_pod(command=shell("echo rank $RANK of $WORLD_SIZE; pwd"), num_ranks=2)
    pod.start_cold()
    end = pod.wait_for_exit()
    assert end.outcome == "succeeded"
    assert [rank.exit_code for rank in end.ranks] == [0, 0]
    assert "rank 0 of 2" in pod.log
    assert "rank 1 of 2" in pod.log
    assert pod.log.count(str(pod.work)) == 2
    pod.end_shim()


def test_a_collector_that_does_not_answer_costs_the_pod_nothing(make_pod: MakePod) -> None:
    trace = PodTrace(endpoint="http://127.0.0.1:1", traceparent=TRACEPARENT)
    pod = make_pod(command=["true"], trace=trace)
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"
    wait_for(lambda: "spans cannot be exported" in pod.launch_log, "it is told")
    # It is told at the shim's very end, so a signal may find it after its handlers.
    assert pod.identity is not None
    with suppress(ProcessLookupError):
        os.kill(pod.identity.pid, signal.SIGTERM)
    wait_for(lambda: not pod.processes(), "the shim to end")
    assert pod.launch_log.count("spans cannot be exported") == 1


MEET = """import os, socket, time
if os.environ["RANK"] == "0" and os.environ["MEETS"] == "yes":
    server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
time.sleep(1)
"""


@pytest.mark.parametrize("meets", ["yes", "no"])
def test_ranks_that_do_not_work_together_are_told_once(make_pod: MakePod, meets: str) -> None:
    command = [sys.executable, "-c", MEET]
    pod = make_pod(command=command, num_ranks=2, environment={"MEETS": meets})
    pod.start_cold()
    pod.wait_for_exit()
    assert pod.log.count("this program runs 2 times") == (1 if meets == "no" else 0)


def test_a_pod_runs_once(make_pod: MakePod) -> None:
    pod = make_pod(command=shell("echo started"))
    pod.start_cold()
    pod.wait_for_exit()
    pod.end_shim()
    pod.start_cold()
    assert pod.process.wait() == 3
    assert pod.log.count("started") == 1


def test_a_pod_with_a_held_lock_is_not_started(make_pod: MakePod) -> None:
    import fcntl

    pod = make_pod(command=shell("echo started"))
    with (pod.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pod.start_cold()
        assert pod.process.wait() == 3
    assert pod.identity is None


def test_ranks_train_in_processes_forked_from_the_template(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    pod = make_pod(
        command=TRAIN,
        num_ranks=2,
        environment={"WEIGHTS": weights},
        metric={"name": "loss", "goal": "minimize"},
        hyperparameters={"learning_rate": 0.02},
    )
    shim = pod.start_warm(template)
    end = pod.wait_for_exit()
    assert end.outcome == "succeeded", pod.log
    assert weights.exists()
    assert pod.identity is not None
    assert pod.identity.pid == shim
    assert end.result is not None
    assert end.result.step == 60
    assert end.result.best is not None
    assert end.result.best.goal is Goal.MINIMIZE
    assert end.result.best.value <= end.result.metrics["loss"]
    manifests = sorted(pod.checkpoints.glob("*/manifest.json"))
    assert manifests[-1].parent.name.startswith("f000000000101-s000000000060-")


def test_the_marker_is_seen_on_every_process_of_a_warm_pod(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    script = "import subprocess, time; print('up', flush=True); subprocess.run(['sleep', '600'])"
    code = code_of(tmp_path, train__py=script)
    pod = make_pod(command=["python", "train.py"], num_ranks=2, code=code, kafka=NO_KAFKA)
    shim = pod.start_warm(template)
    wait_for(lambda: len(pod.processes()) == 5, "shim, two ranks and their children")
    assert shim in pod.processes()
    pod.stop(StopNotice(reason="cancel", deadline_seconds=0.2))
    assert pod.wait_for_exit().outcome == "interrupted"
    assert pod.processes() == [shim]
    pod.end_shim()


def test_a_killed_rank_fails_the_pod_and_the_others_end(make_pod: MakePod) -> None:
    command = shell("if [ $RANK = 1 ]; then echo last words; kill -9 $$; fi; sleep 600")
    pod = make_pod(command=command, num_ranks=2)
    pod.start_cold()
    end = pod.wait_for_exit()
    assert end.outcome == "failed"
    assert end.first_failed_rank == 1
    assert [(rank.exit_code, rank.signal) for rank in end.ranks] == [(None, 9), (None, 9)]
    assert end.detail == "rank 1 was killed by signal 9 (SIGKILL)"
    assert end.last_log == "last words\n"


def test_training_resumes_after_a_killed_rank(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    variables = {"WEIGHTS": tmp_path / "weights", "PAUSE": 0.02}
    struck = make_pod(
        command=TRAIN, num_ranks=2, environment=variables | {"KILL_AT": 37, "KILL_RANK": 1}
    )
    struck.start_warm(template)
    end = struck.wait_for_exit()
    assert (end.outcome, end.first_failed_rank) == ("failed", 1)
    struck.end_shim()

    again = make_pod(command=TRAIN, num_ranks=2, environment=variables, attempt=2)
    again.start_warm(template)
    assert again.wait_for_exit().outcome == "succeeded", again.log
    assert re.search(r"resumed at step (10|20|30) from checkpoint f000000000101-", again.log)


def test_a_stop_notice_ends_in_a_checkpoint(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    variables = {"WEIGHTS": tmp_path / "weights", "PAUSE": 0.1}
    pod = make_pod(command=TRAIN, num_ranks=2, environment=variables)
    pod.start_warm(template)
    pod.wait_for_log("rank 1 begins")
    wait_for(lambda: list(pod.checkpoints.glob("*/manifest.json")), "a checkpoint")
    pod.stop(StopNotice(reason="preempt", deadline_seconds=30))
    end = pod.wait_for_exit()
    assert end.outcome == "interrupted"
    assert [rank.exit_code for rank in end.ranks] == [75, 75]
    assert end.result is not None
    newest = max(pod.checkpoints.glob("*/manifest.json")).parent.name
    assert int(newest[15:27]) == end.result.step


@pytest.mark.parametrize(
    "shell_line", ["python save.py", "trap true TERM; python save.py; exit 75"]
)
def test_a_notice_reaches_the_program_of_a_shell_and_its_deadline_holds(
    make_pod: MakePod, tmp_path: Path, shell_line: str
) -> None:
    """The shell ends at once, or waits for its program; either way the program can save."""
    save = """import signal, sys, time
def save(number, frame):
    time.sleep(2)  # longer than leftovers without a notice have
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
signal.pause()
"""
    code = code_of(tmp_path, train__sh=shell_line, save__py=save)
    pod = make_pod(command=["bash", "train.sh"], code=code)
    pod.start_cold()
    pod.wait_for_log("up")
    pod.stop(StopNotice(reason="preempt", deadline_seconds=120))
    assert pod.wait_for_exit().outcome == "interrupted"
    assert pod.log == "up\nsaved\n"


def test_a_program_that_does_not_stop_is_killed_at_the_deadline(make_pod: MakePod) -> None:
    pod = make_pod(command=shell("trap '' TERM; echo up; while true; do sleep 1; done"))
    pod.start_cold()
    pod.wait_for_log("up")
    pod.stop(StopNotice(reason="cancel", deadline_seconds=0.5))
    end = pod.wait_for_exit()
    assert (end.outcome, end.ranks[0].signal) == ("interrupted", 9)


def test_what_a_rank_leaves_running_is_ended_and_reaped(make_pod: MakePod) -> None:
    # The grandchild has its own session and no environment, and its parent is gone.
    pod = make_pod(
        command=shell("env -i setsid sh -c 'echo $$ > orphan; exec sleep 600' & sleep 0.3")
    )
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"
    orphan = int((pod.work / "orphan").read_text())
    assert not Path(f"/proc/{orphan}").exists()


def test_a_killed_shim_leaves_no_exit_and_its_orphans_carry_the_marker(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    code = code_of(tmp_path, train__py="import time; print('up', flush=True); time.sleep(600)")
    pod = make_pod(command=["python", "train.py"], num_ranks=2, code=code)
    shim = pod.start_warm(template)
    wait_for(lambda: pod.log.count("up") == 2, "both ranks to be up")
    os.kill(shim, signal.SIGKILL)
    wait_for(lambda: shim not in pod.processes(), "the shim to be gone")
    assert len(pod.processes()) == 2
    pod.kill_all()
    assert not (pod.directory / "exit.json").exists()


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_python_is_this_interpreter_with_the_jobs_files(
    make_pod: MakePod, template: Path, tmp_path: Path, is_warm: bool
) -> None:
    code = code_of(
        tmp_path,
        train__py="import sys, near, os; print(sys.executable, sys.argv, near.NAME, os.getcwd())\n"
        "import atexit; atexit.register(print, 'at exit')\nsys.exit(4)",
        near__py="NAME = 'near'",
    )
    pod = make_pod(command=["python", "train.py", "--fast"], code=code)
    if is_warm:
        pod.start_warm(template)
    else:
        pod.start_cold()
    end = pod.wait_for_exit()
    where = pod.work
    wanted = f"{sys.executable} ['train.py', '--fast'] near {where}\nat exit\n"
    assert end.last_log == wanted
    assert end.detail == "rank 0 ended with exit code 4 after it printed: at exit"


def test_code_with_another_digest_is_refused(make_pod: MakePod, tmp_path: Path) -> None:
    code = code_of(tmp_path, train__py="print('never')")
    pod = make_pod(command=["python", "train.py"], code=code | {"sha256": "0" * 64})
    pod.start_cold()
    end = pod.wait_for_exit()
    assert end.outcome == "failed"
    assert "another SHA-256" in end.detail
    assert end.ranks == ()


def test_values_reported_by_any_program_are_its_result(make_pod: MakePod) -> None:
    lines = "\n".join(
        f"drivetrain.report({{'score': {value}}}, step={step})"
        for step, value in ((1, 0.5), (2, 0.9), (3, 0.7))
    )
    pod = make_pod(
        command=["python", "-c", f"import drivetrain\n{lines}"],
        metric={"name": "score", "goal": "maximize"},
    )
    pod.start_cold()
    end = pod.wait_for_exit()
    assert end.outcome == "succeeded", pod.log
    assert end.result is not None
    assert (end.result.step, end.result.metrics) == (3, {"score": 0.7})
    assert end.result.best is not None
    assert (end.result.best.value, end.result.best.step) == (0.9, 2)


def test_unacknowledged_samples_are_saved_with_the_checkpoint(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    """Nothing is acknowledged here, so the checkpoint contains all samples so far, in batches."""
    variables = {"WEIGHTS": tmp_path / "weights"}
    pod = make_pod(command=TRAIN, environment=variables, kafka=NO_KAFKA)
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded"
    newest = max(pod.checkpoints.glob("*/manifest.json")).parent
    samples = json.loads((newest / "rank-0.json").read_text())["samples"]
    steps = [step for batch in samples for step in batch["columns"]["loss"]["steps"]]
    assert steps == list(range(1, 61))
    assert [batch["batch"] for batch in samples] == list(range(len(samples)))
    assert {batch["run_id"] for batch in samples} == {pod.spec.run_id}


def test_a_pod_whose_telemetry_cannot_be_sent_still_ends(make_pod: MakePod) -> None:
    pod = make_pod(command=shell("echo said"), kafka=NO_KAFKA)
    pod.start_cold()
    assert pod.wait_for_exit(seconds=30).outcome == "succeeded"
    pod.end_shim()
    assert "not all telemetry was sent" in pod.launch_log


@pytest.mark.heavy
def test_while_kafka_is_unavailable_one_shim_stays_however_many_pods_end(
    make_pod: MakePod,
) -> None:
    first, second = (
        make_pod(command=shell("echo said"), attempt=attempt, kafka=NO_KAFKA) for attempt in (1, 2)
    )
    for pod in (first, second):
        pod.start_cold()
        assert pod.wait_for_exit().outcome == "succeeded"
    assert second.process.wait() == 0
    assert first.process.poll() is None
    kept = sorted((first.directory.parents[2] / "unsent").glob("*-pod_*"))
    assert [path.name.split("-")[1] for path in kept] == [first.pod_id, second.pod_id]
    first.end_shim()
