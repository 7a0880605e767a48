"""What a program writes beside its code is there again in the next attempt, on any machine."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.job_files import FileList, newest_lists_first
from drivetrain_schemas.pods import FailureKind, StopNotice
from tests.trainer.pods import Pod, wait_for
from tests.trainer.ranks import SCRIPTS
from tests.trainer.test_pods import code_of, shell

MakePod = Callable[..., Pod]


def lists(pod: Pod) -> list[FileList]:
    """The lists that belong to no checkpoint, the newest first."""
    root = pod.files
    keys = [path.relative_to(root).as_posix() for path in root.glob("lists/*.json")]
    return [
        FileList.model_validate_json((root / order.name).read_bytes())
        for order in newest_lists_first(keys)
    ]


def printed(pod: Pod) -> list[str]:
    return [line for line in pod.log.splitlines() if not line.startswith("drivetrain: ")]


def lose_the_machine(pod: Pod) -> None:
    """Nothing of the attempt is left but what is in the object store."""
    pod.kill_all()
    shutil.rmtree(pod.directory.parents[1])


def test_files_of_any_program_outlive_a_kill(make_pod: MakePod, tmp_path: Path) -> None:
    code = code_of(tmp_path, data__csv="1,2\n", notes__txt="as packed", unused__txt="")
    write = (
        "test $(cat data.csv) = 1,2 && mkdir -p out && echo weights > out/model.pt"
        " && echo more >> notes.txt && rm unused.txt && ln -s out/model.pt best.pt"
        " && chmod 700 out/model.pt && touch -d 2020-01-01 out/model.pt && kill -9 $$"
    )
    first = make_pod(command=shell(write), code=code)
    first.start_cold()
    assert first.wait_for_exit().outcome == "failed", first.log
    assert (first.directory / "code" / "notes.txt").read_text() == "as packed"
    lose_the_machine(first)

    read = "cat best.pt notes.txt; stat -c '%a %Y' out/model.pt; ls; echo $DRIVETRAIN_JOB_DIRECTORY"
    again = make_pod(command=shell(read), code=code, attempt=2)
    again.start_cold()
    assert again.wait_for_exit().outcome == "succeeded", again.log
    assert again.work == first.work
    assert again.log == (
        "drivetrain: attempt 2 begins with 2 files that were saved before\n"
        f"weights\nas packedmore\n700 1577836800\nbest.pt\ndata.csv\nnotes.txt\nout\n{again.work}\n"
    )


def test_files_that_an_attempt_changed_are_its_progress(make_pod: MakePod) -> None:
    """Of a program that saves by itself nothing else tells that it got further."""
    has_saved = []
    for attempt, line in enumerate(("echo 1 > state", "echo 2 > state", "cat state"), start=1):
        pod = make_pod(command=shell(f"{line}; exit 1"), attempt=attempt)
        pod.start_cold()
        failure = pod.wait_for_exit().failure
        assert failure is not None
        has_saved.append(failure.has_saved)
        pod.end_shim()
    assert has_saved == [True, True, False]


def test_files_are_those_of_the_checkpoint_that_training_resumes_from(
    make_pod: MakePod, template: Path, tmp_path: Path
) -> None:
    command = ["python", str(SCRIPTS / "keeps_files.py")]
    first = make_pod(command=command, environment={"KILL_AT": 27})
    first.start_warm(template)
    assert first.wait_for_exit().outcome == "failed", first.log
    # What was there at the end can be read, but training does not continue from it.
    assert [file.path for file in lists(first)[0].files] == ["log.csv", "model.pt"]
    lose_the_machine(first)

    again = make_pod(command=command, attempt=2)
    again.start_warm(template)
    assert again.wait_for_exit().outcome == "succeeded", again.log
    assert "attempt 2 begins with 2 files that were saved before with checkpoint f" in again.log
    assert "resumed at step 20" in again.log
    steps = (again.work / "log.csv").read_text().split()
    assert steps == [str(step) for step in range(1, 31)]
    assert torch.load(again.work / "model.pt")["step"] == 30
    assert [file.path for file in lists(again)[0].files] == ["log.csv", "model.pt", "report.txt"]


def test_files_agree_with_the_older_checkpoint_where_the_newest_is_damaged(
    make_pod: MakePod, template: Path
) -> None:
    command = ["python", str(SCRIPTS / "keeps_files.py")]
    first = make_pod(command=command, environment={"KILL_AT": 27})
    first.start_warm(template)
    assert first.wait_for_exit().outcome == "failed", first.log
    (newest,) = first.checkpoints.glob("f*-s000000000020-*")
    shard = newest / "rank-0.safetensors"
    shard.write_bytes(bytes(shard.stat().st_size))
    lose_the_machine(first)

    again = make_pod(command=command, attempt=2)
    again.start_warm(template)
    assert again.wait_for_exit().outcome == "succeeded", again.log
    assert "resumed at step 10" in again.log
    assert (again.work / "log.csv").read_text().split() == [str(step) for step in range(1, 31)]


@pytest.mark.heavy
def test_files_agree_on_each_machine_of_a_run(make_pod: MakePod) -> None:
    """Those of rank 0's machine are the job's; the other one starts with them, and falls back."""
    command = ["python", str(SCRIPTS / "keeps_files.py")]

    def both(attempt: int, **environment: int) -> list[Pod]:
        facts = {"command": command, "attempt": attempt, "num_pods": 2, "environment": environment}
        pods = [make_pod(**facts)]
        port = pods[0].spec.master_port
        pods.append(make_pod(pod_index=1, machine="b", master_port=port, **facts))
        for pod in pods:
            pod.start_cold()
        return pods

    first = both(1, KILL_AT=27)
    for pod in first:
        assert pod.wait_for_exit().outcome == "failed", pod.log
    assert "2 files that were written on this machine are not saved" in first[1].log
    (newest,) = first[0].checkpoints.glob("f*-s000000000020-*")
    shard = newest / "rank-1.safetensors"
    shard.write_bytes(bytes(shard.stat().st_size))
    for pod in first:
        lose_the_machine(pod)

    again = both(2)
    for pod in again:
        assert pod.wait_for_exit().outcome == "succeeded", pod.log
        steps = (pod.work / "log.csv").read_text().split()
        assert steps == [str(step) for step in range(1, 31)]
    assert "resumed at step 10" in again[0].log


def test_a_pod_that_starts_late_has_the_files_that_the_others_had(make_pod: MakePod) -> None:
    write = shell("echo $DRIVETRAIN_ATTEMPT >> log; exit $((2 - DRIVETRAIN_ATTEMPT))")
    for attempt in (1, 2):
        pod = make_pod(command=write, attempt=attempt, num_pods=2)
        pod.start_cold()
        pod.wait_for_exit()
    late = make_pod(command=shell("cat log"), attempt=2, num_pods=2, pod_index=1, machine="b")
    late.start_cold()
    assert late.wait_for_exit().outcome == "succeeded", late.log
    assert printed(late) == ["1"]


def test_files_of_damaged_checkpoints_are_not_those_of_a_new_beginning(
    make_pod: MakePod, template: Path
) -> None:
    command = ["python", str(SCRIPTS / "keeps_files.py")]
    first = make_pod(command=command, environment={"KILL_AT": 27})
    first.start_warm(template)
    assert first.wait_for_exit().outcome == "failed", first.log
    for shard in first.checkpoints.glob("f*/rank-0.safetensors"):
        shard.write_bytes(bytes(shard.stat().st_size))
    lose_the_machine(first)

    again = make_pod(command=command, attempt=2)
    again.start_warm(template)
    assert again.wait_for_exit().outcome == "succeeded", again.log
    assert (again.work / "log.csv").read_text().split() == [str(step) for step in range(1, 31)]
    assert "training begins again at step 0: no checkpoint of an earlier attempt" in again.log


def test_that_all_files_were_removed_is_saved(make_pod: MakePod) -> None:
    for attempt, command in enumerate(["touch state; exit 1", "rm state; exit 1", "ls"], start=1):
        pod = make_pod(command=shell(command), attempt=attempt)
        pod.start_cold()
        pod.wait_for_exit()
        assert printed(pod) == []


def test_files_are_saved_while_a_program_runs(make_pod: MakePod) -> None:
    pod = make_pod(
        command=shell("echo early > state; echo up; sleep 600"),
        checkpoint={"every_minutes": 0.01},
    )
    pod.start_cold()
    pod.wait_for_log("up")
    wait_for(lambda: lists(pod), "a list")
    lose_the_machine(pod)
    again = make_pod(command=shell("cat state"), attempt=2)
    again.start_cold()
    assert again.wait_for_exit().outcome == "succeeded", again.log
    assert printed(again) == ["early"]


@pytest.mark.heavy
def test_a_retry_goes_back_before_files_that_an_attempt_failed_with(make_pod: MakePod) -> None:
    """Killed while it wrote its state: the whole version is the one that was saved before."""
    writes = "echo whole > state; until [ -e torn ]; do sleep 0.02; done; : > state; kill -9 $$"
    first = make_pod(command=shell(writes), checkpoint={"every_minutes": 0.01})
    first.start_cold()
    wait_for(lambda: lists(first), "a list")
    (first.work / "torn").touch()
    assert first.wait_for_exit().outcome == "failed"
    reads = shell("grep whole state")
    second = make_pod(command=reads, attempt=2)
    second.start_cold()
    assert second.wait_for_exit().outcome == "failed"
    assert "--attempt 1` has the newer" in second.log
    assert [one.attempt for one in lists(second)][:2] == [2, 1]
    third = make_pod(command=reads, attempt=3)
    third.start_cold()
    assert third.wait_for_exit().outcome == "succeeded", third.log
    assert len(lists(third)) == len(lists(second))  # unchanged files are no new version


def test_files_are_saved_at_a_stop(make_pod: MakePod) -> None:
    pod = make_pod(
        command=shell("trap 'echo saved > state; exit 75' TERM; echo up; sleep 600 & wait")
    )
    pod.start_cold()
    pod.wait_for_log("up")
    pod.stop(StopNotice(reason="preempt", deadline_seconds=20))
    assert pod.wait_for_exit().outcome == "interrupted"
    assert [file.path for file in lists(pod)[0].files] == ["state"]


def test_ranks_share_the_directory(make_pod: MakePod) -> None:
    command = "if [ $RANK = 0 ]; then echo ready > flag; fi; until [ -e flag ]; do sleep 0.1; done"
    pod = make_pod(command=shell(command), num_ranks=2)
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"


def test_files_that_cannot_be_saved_are_reported_and_the_pod_ends(
    make_pod: MakePod, tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    pod = make_pod(command=shell("echo x > state; echo up; exec sleep 600"))
    pod.start_cold()
    pod.wait_for_log("up")
    objects.rename(tmp_path / "away")
    pod.stop(StopNotice(reason="cancel", deadline_seconds=1))
    assert pod.wait_for_exit().outcome == "interrupted"
    assert "files are not saved" in pod.log


def test_files_that_cannot_be_taken_cost_no_checkpoint(make_pod: MakePod, template: Path) -> None:
    """Neither without space for copies nor without the directory; it is told, and it ends."""
    command = ["python", str(SCRIPTS / "loses_its_files.py")]
    pod = make_pod(command=command)
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded", pod.log
    summaries = {
        manifest.step: manifest.files
        for path in pod.checkpoints.glob("*/manifest.json")
        if (manifest := Manifest.model_validate_json(path.read_bytes())).files is not None
    }
    assert {step: (s.num_files, s.num_left_out) for step, s in summaries.items()} == {
        1: (1, 0),
        2: (1, 1),
        3: (0, 1),
        4: (1, 0),
    }
    assert "No space left on device" in summaries[2].left_out[0]
    assert pod.log.count("No space left on device") == 2, pod.log  # it began, it is over
    assert "files are saved again" in pod.log


def test_a_fork_continues_from_another_jobs_checkpoint(make_pod: MakePod, template: Path) -> None:
    command = ["python", str(SCRIPTS / "keeps_files.py")]
    source = make_pod(command=command)
    source.start_warm(template)
    assert source.wait_for_exit().outcome == "succeeded", source.log
    (start,) = source.checkpoints.glob("f*-s000000000020-*")

    start_from = {"job_id": source.spec.job_id, "checkpoint": start.name}
    fork = make_pod(request="fork", command=command, start_from=start_from)
    assert fork.spec.job_id != source.spec.job_id
    fork.start_warm(template)
    assert fork.wait_for_exit().outcome == "succeeded", fork.log
    assert "resumed at step 20" in fork.log
    assert (fork.work / "log.csv").read_text().split() == [str(step) for step in range(1, 31)]
    steps = {int(path.parent.name[15:27]) for path in fork.checkpoints.glob("*/manifest.json")}
    assert 30 in steps
    assert 10 not in steps
    newest = {"job_id": source.spec.job_id, "checkpoint": "newest"}
    last = make_pod(request="last", command=command, start_from=newest)
    last.start_warm(template)
    assert last.wait_for_exit().outcome == "succeeded", last.log
    assert "resumed at step 30" in last.log
    # What it saves is its own: the source may be deleted now.
    named = {part for file in lists(fork)[0].files for part in file.parts}
    assert named <= {path.name for path in fork.files.glob("blobs/*")}


def test_the_best_of_a_fork_is_its_own(make_pod: MakePod, template: Path) -> None:
    job = {
        "command": ["python", str(SCRIPTS / "turns_worse.py")],
        "metric": {"name": "loss", "goal": "minimize"},
    }
    source = make_pod(**job, max_steps=10)
    source.start_warm(template)
    start_from = {"job_id": source.spec.job_id, "checkpoint": "newest"}
    assert best_of(source) == (1, 1)
    fork = make_pod(request="fork", **job, max_steps=15, start_from=start_from)
    fork.start_warm(template)
    assert best_of(fork) == (11, 11)


def best_of(pod: Pod) -> tuple[float, int]:
    end = pod.wait_for_exit()
    assert end.outcome == "succeeded", pod.log
    assert end.result is not None
    assert end.result.best is not None
    return end.result.best.value, end.result.best.step


def test_a_fork_of_a_checkpoint_that_is_gone_fails(make_pod: MakePod, template: Path) -> None:
    """Also a program that only wants its files, and never asks for its state."""
    gone = {"job_id": "job_" + "a" * 26, "checkpoint": "f000000000001-s000000000020-00000000"}
    pod = make_pod(command=shell("echo from the beginning"), start_from=gone)
    pod.start_warm(template)
    end = pod.wait_for_exit()
    assert end.outcome == "failed", pod.log
    assert "start_from: the checkpoint f000000000001-s000000000020-00000000" in end.detail
    assert end.failure is not None, "it would be tried again"
    assert end.failure.kind == FailureKind.INVALID
